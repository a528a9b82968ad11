"""Codecs: bytes to records and back, without any I/O of their own."""
