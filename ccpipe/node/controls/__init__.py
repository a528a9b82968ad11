"""What of a node can be asked for and set over the bus."""
