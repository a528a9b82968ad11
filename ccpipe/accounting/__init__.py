"""Sums, selection and an index of finished jobs, for ``ccpipe acct``."""
