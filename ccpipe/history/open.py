"""Opens the store that a site has, from one text."""

from collections.abc import Callable
from pathlib import Path

from ccpipe.config import mask
from ccpipe.errors import UsageError
from ccpipe.history.interfaces import History
from ccpipe.sources.stored import is_delta_table


def open_history(
    where: str,
    averaged: Callable[[], frozenset[str]],
    *,
    user: str = "",
    password_file: str = "",
) -> History:
    """Return the history of a store; nothing is connected or read yet.

    Parameters
    ----------
    where
        A directory of Parquet files or of a Delta table, ``s3://bucket/prefix`` of a Delta table,
        the ``http://`` or ``https://`` address of VictoriaMetrics or Prometheus, or
        ``postgresql://…``.
    averaged
        Returns the names of the metrics that are averaged over the parts of a node; it is called in
        a thread.
    user, password_file
        User name, and file containing the password, if the store requires them; of S3-compatible
        storage the access key, and file containing its secret key.

    Raises
    ------
    UsageError
        if `where` is a file or another kind of address.
    ConfigError
        if an address is invalid or contains a password.
    MissingExtra
        if the library of the store is not installed.

    """
    login = {"user": user, "password_file": password_file}
    scheme, separator, _ = where.partition("://")
    path = Path(where).expanduser()
    if scheme == "s3" or (not separator and is_delta_table(path)):
        from ccpipe.formats.delta import DeltaAddress
        from ccpipe.history.delta import DeltaHistory

        keys = {"access_key": user, "secret_key_file": password_file}
        return DeltaHistory(DeltaAddress(where, option="history", **keys), averaged)
    if not separator:
        from ccpipe.history.parquet import ParquetHistory

        return ParquetHistory(path, averaged)
    if scheme in ("http", "https"):
        from ccpipe.history.prometheus import PrometheusHistory

        return PrometheusHistory(where, averaged, **login)
    if scheme in ("postgresql", "postgres"):
        from ccpipe.history.postgres import PostgresHistory

        return PostgresHistory(where, averaged, **login)
    raise UsageError(
        f"history: {mask(where, 'url')!r}: expected a directory, s3://…, http://…, "
        "https://… or postgresql://…"
    )
