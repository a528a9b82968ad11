"""Slurm's JSON, in the dialects of all its versions."""
