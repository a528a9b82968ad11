"""``ccpipe convert``: files from one format to another."""
