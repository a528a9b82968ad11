"""Sources: files, commands and services; one directory per scheduler, brokers in `bus`."""
