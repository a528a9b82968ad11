"""Slurm's records to other formats."""
