"""This process, and the programs that it starts: none outlives it."""
