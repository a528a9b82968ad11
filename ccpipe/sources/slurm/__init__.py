"""What Slurm's own commands report, polled."""
