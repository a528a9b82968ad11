"""Cost of the publisher and of gathering steps on a node."""
