"""The dashboard: a web page of what is on the bus now, with history from Parquet files.

Data flow one way: ``feed`` hears the bus and fills the live state (``nodes``, ``jobs``,
``journal``, ``health``); ``views`` reads it once a second for each open page; ``server`` sends
what they give. Nothing is ever written to the bus.
"""
