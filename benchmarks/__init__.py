"""What ccpipe's claims of speed rest on: ``make bench``."""
