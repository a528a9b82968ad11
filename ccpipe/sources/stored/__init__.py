"""Reading from stores: the sources of ``ccpipe backfill``, the tables of ``ccpipe query``."""
