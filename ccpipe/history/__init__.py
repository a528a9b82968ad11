"""Queries of stored metrics and jobs, whichever store a site has."""
