"""Sinks: one file for each store, or a folder; those of brokers are in ``bus``."""
