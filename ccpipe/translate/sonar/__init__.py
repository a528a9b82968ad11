"""Sonar's envelopes to line protocol and back."""
