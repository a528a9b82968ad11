"""Slurm's two gather APIs: job accounting (``jobacct``) and time series (``profile``)."""
