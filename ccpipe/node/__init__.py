"""Programs that run on a compute node."""
