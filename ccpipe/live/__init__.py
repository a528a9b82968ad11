"""What clusters look like now: nodes, jobs, rates and the health of the pipe, from the bus."""
