"""``ccpipe acct``: what finished jobs used."""
