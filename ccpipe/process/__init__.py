"""This process and its child processes, none of which outlives it."""
