"""Collectors: one file for each thing that is measured on a node."""
