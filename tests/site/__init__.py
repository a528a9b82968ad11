"""What sites install, built and tried where they would run it, as root: ``make site``."""
