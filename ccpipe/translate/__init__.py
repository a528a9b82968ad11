"""Translators: records to records, pure; a directory for each format that is translated."""
