"""Slurm's commands and profiles, read and merged."""
