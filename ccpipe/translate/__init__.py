"""Translators: records to records, pure."""
