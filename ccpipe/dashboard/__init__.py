"""The dashboard: a live web page of the bus, with history from Parquet files.

Data flow one way: ``feed`` receives from the bus and updates the live state (``nodes``, ``jobs``,
``journal``, ``health``); ``views`` reads it once a second for each open page; ``server`` sends the
result. Nothing is ever published on the bus.
"""
