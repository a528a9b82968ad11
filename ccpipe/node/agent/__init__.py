"""``ccpipe publish``: everything that the publisher runs on a node."""
