"""Indexes of accounting files: where the records of each job are."""
