"""``ccpipe step``: run a command and measure its resource usage."""
