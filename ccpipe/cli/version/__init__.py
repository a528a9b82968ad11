"""``ccpipe version``: versions of ccpipe, Python and libraries."""
