"""Kafka, both ways: the only package that imports aiokafka."""

from importlib.util import find_spec

from ccpipe.errors import MissingExtra

if None in map(find_spec, ("aiokafka", "cramjam")):  # aiokafka needs cramjam for snappy
    raise MissingExtra("aiokafka", "kafka")
