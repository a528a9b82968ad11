"""``ccpipe step``: run a command and gather what it uses."""
