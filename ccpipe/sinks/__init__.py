"""Sinks: one file or directory per store; those of brokers are in ``bus``."""
