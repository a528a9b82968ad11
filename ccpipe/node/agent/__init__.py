"""``ccpipe publish``: everything that runs side by side on a node."""
