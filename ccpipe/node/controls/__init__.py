"""Controls of a node, which can be read and set over the bus."""
