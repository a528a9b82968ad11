"""Benchmarks for ccpipe's claims of speed: ``make bench``."""
