"""Records in a file that grows, is rotated, and is kept for as long as a site wants."""

from ccpipe.sinks.file.sink import FileSink

__all__ = ["FileSink"]
