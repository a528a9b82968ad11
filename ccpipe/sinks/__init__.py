"""Sinks: one file or directory per store; sinks to brokers are in ``bus``."""
