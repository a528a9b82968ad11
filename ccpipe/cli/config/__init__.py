"""The command ``config``."""
