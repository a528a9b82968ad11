"""What Sonar says of a node: its envelopes ``sample`` and ``sysinfo``."""
