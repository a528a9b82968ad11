"""ccpipe: the monitoring pipe for HPC clusters.

Bytes become records, records become other records, records become bytes, one way::

    source → translators → sink

``ccpipe.message`` holds the record, ``ccpipe.formats`` the codecs, ``ccpipe.pipeline`` the plug
that joins the parts, and ``ccpipe.cli`` the command. Nothing heavy is imported here.
"""

__version__ = "0.1.0"
