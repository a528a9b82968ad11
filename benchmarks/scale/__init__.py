"""Large clusters: throughput and resource usage from publisher to store: ``make scale``."""
