"""What the publisher and the gathering of steps cost on a node."""
