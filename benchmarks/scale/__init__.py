"""Large clusters: what flows from publisher to store, and what it takes: ``make scale``."""
