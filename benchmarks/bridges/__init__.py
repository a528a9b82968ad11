"""Throughput and CPU time of bridges from the broker into stores."""
