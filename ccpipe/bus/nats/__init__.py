"""NATS: connection, source, sink, streams and the embedded server."""
