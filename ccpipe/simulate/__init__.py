"""A simulated cluster: nodes, jobs, failures and bad data, the same for the same seed.

It is what large clusters are tried with, and where data for demonstrations come from.
"""

from ccpipe.simulate.cluster import Payload, Shape, SimulatedCluster

__all__ = ["Payload", "Shape", "SimulatedCluster"]
