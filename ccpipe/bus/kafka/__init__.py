"""Kafka, both ways: the only room that knows aiokafka."""

from importlib.util import find_spec

from ccpipe.errors import MissingExtra

if None in map(find_spec, ("aiokafka", "cramjam")):  # the one needs the other for snappy
    raise MissingExtra("aiokafka", "kafka")
