"""The broker: the only rooms that know NATS."""
