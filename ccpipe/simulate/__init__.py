"""A simulated cluster: nodes, jobs, failures and bad data, reproducible by seed.

For load tests and demonstrations.
"""

from ccpipe.simulate.cluster import Payload, SimulatedCluster, SimulationOptions

__all__ = ["Payload", "SimulatedCluster", "SimulationOptions"]
