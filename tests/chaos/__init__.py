"""Faults in real processes, each with an account of every line."""
