"""``ccpipe tail``: messages on the bus."""
