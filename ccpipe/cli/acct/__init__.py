"""``ccpipe acct``: resource usage of finished jobs."""
