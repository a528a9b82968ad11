"""``ccpipe tail``: messages on the broker."""
