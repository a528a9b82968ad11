"""``ccpipe publish``."""
