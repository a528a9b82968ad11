"""The text that Slurm's commands print: tables with a delimiter, and scontrol's ``Key=value``."""
