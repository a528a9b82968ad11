"""Shared by commands that run a recipe."""
