"""Power of nodes, measured by the outlets of rack PDUs."""
