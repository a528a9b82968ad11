"""Sources: one file for each thing that is measured or read."""
