"""``ccpipe jobs``: the jobs of a user, and the report of one job."""
