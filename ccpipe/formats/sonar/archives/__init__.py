"""Formats that earlier versions of Sonar wrote, read as today's envelopes."""
