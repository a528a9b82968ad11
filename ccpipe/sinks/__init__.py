"""Sinks: one file for each store."""
