"""Collectors: one file for each thing measured on a node."""
