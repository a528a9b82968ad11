"""Sonar's reports on a node: its envelopes ``sample`` and ``sysinfo``."""
