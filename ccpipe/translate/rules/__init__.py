"""Rules for metrics: select, drop, rename, tag, convert, rate, combine and aggregate."""
