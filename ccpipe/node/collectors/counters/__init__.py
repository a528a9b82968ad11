"""Hardware counters."""
