"""The NATS client protocol on a connection's bytes: frames, and the loop that reads them."""
