"""JetStream's streams: their configuration, their consumers, and reading from them."""
