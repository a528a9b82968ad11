"""Kafka, both ways: the only room that knows aiokafka."""
