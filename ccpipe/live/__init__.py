"""The current state of clusters: nodes, jobs, rates and the health of the pipe, from the bus."""
