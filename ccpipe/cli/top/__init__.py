"""``ccpipe top``: what the clusters do now."""
