"""Profile files, written: as Slurm's plug-in does, and whole or not at all."""
