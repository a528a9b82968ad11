"""Grid Engine's accounting and running jobs as sources."""
