"""Readers of ``/proc``, ``/sys``, cgroups and hardware counters, and of nothing else."""
