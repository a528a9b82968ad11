"""Polling of Slurm's own commands."""
