"""Rules for metrics: select, drop, rename, tag, convert and aggregate."""
