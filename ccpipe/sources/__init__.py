"""Sources: files, commands and services; one folder per scheduler, brokers in `bus`."""
