"""What stores have: the sources of ``ccpipe backfill`` and the tables of ``ccpipe query``."""
