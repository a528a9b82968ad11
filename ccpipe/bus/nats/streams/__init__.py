"""Streams of JetStream: their configuration, their consumers and what is read out of them."""
