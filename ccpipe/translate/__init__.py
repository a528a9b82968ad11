"""Translators: records to records, pure; a folder for each format that is translated."""
