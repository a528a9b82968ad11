"""``ccpipe profile``: profiles of Slurm's jobs, as sh5util handles them and beyond."""
