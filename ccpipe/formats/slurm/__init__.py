"""What Slurm's commands print, text and JSON of 22.05 to 26.05, as records in one set of units.

What fits nothing is handed back as ``RejectedRow``, and the rest goes on.
"""
