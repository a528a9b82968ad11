"""Brokers: one directory each, with source and sink; subjects and codecs are shared."""
