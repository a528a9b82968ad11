"""Sums, selection and an index over finished jobs; ``ccpipe acct`` shows them."""
