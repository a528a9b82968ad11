"""Readers of the text and JSON of Slurm's commands, 22.05 to 26.05, in one set of units.

Rows that cannot be parsed are returned as ``RejectedRow``; other rows are unaffected.
"""
