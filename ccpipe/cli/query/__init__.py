"""``ccpipe query``: SQL over Parquet files."""
