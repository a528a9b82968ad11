"""``ccpipe query``: SQL over Parquet files or a Delta table."""
