"""Real servers for tests and benchmarks: on free loopback ports, in folders of their own."""
