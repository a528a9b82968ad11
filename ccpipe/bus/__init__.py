"""Brokers: one folder each, with source and sink; subjects and codecs are shared."""
