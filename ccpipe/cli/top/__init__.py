"""``ccpipe top``: live status of clusters."""
