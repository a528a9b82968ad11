"""A Delta table as the tables of ``parquet_tables``, without DuckDB's extension for it."""

from typing import TYPE_CHECKING

from ccpipe.errors import MissingInputError
from ccpipe.formats.delta import DeltaAddress, TableNotFoundError
from ccpipe.sources.stored.parquet_tables import VIEWS

if TYPE_CHECKING:
    import duckdb

_SAMPLES = """
    CREATE OR REPLACE VIEW samples AS
    SELECT time, ns, * EXCLUDE (time, ns, cluster, date, uint), uint::UBIGINT AS uint, cluster, date
    FROM stored
"""


def make_delta_tables(connection: "duckdb.DuckDBPyConnection", address: DeltaAddress) -> None:
    """Create the tables, of the table as it is now; raises MissingInputError without one."""
    try:
        table = address.open()
    except TableNotFoundError:
        raise MissingInputError(f"{address.shown}: no Delta table") from None
    with address.errors():
        connection.register("stored", table.to_pyarrow_dataset())
    connection.execute(_SAMPLES)
    connection.execute(VIEWS)
