"""Sources: what is read, followed or received; a folder for each scheduler, brokers in `bus`."""
