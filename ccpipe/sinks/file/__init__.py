"""Records in a file that is rotated, with retention of closed files."""

from ccpipe.sinks.file.sink import FileSink

__all__ = ["FileSink"]
