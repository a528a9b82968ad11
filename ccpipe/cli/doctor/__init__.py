"""``ccpipe doctor``: what to look at first when something does not work."""
