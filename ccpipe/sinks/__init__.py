"""Sinks: one file or folder per store; those of brokers are in ``bus``."""
