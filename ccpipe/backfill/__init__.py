"""What ``ccpipe backfill`` reads, and how far it is."""
