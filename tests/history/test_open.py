"""Which store a text opens, and what is refused."""

from pathlib import Path

import pytest

from ccpipe.errors import (
    CcpipeError,
    ConfigError,
    DeniedError,
    UnavailableError,
    UsageError,
)
from ccpipe.history.delta import DeltaHistory
from ccpipe.history.interfaces import MetricQuery
from ccpipe.history.open import open_history
from ccpipe.history.parquet import ParquetHistory
from ccpipe.history.postgres import PostgresHistory
from ccpipe.history.prometheus import PrometheusHistory
from tests.conftest import free_port
from tests.history.conftest import averaged
from tests.servers.postgres import Server
from tests.servers.victoriametrics import VictoriaMetrics

QUERY = MetricQuery(cluster="fox", nodes=["n1"], start=1e9, stop=1e9 + 60)


def test_text_opens_store_of_its_kind(tmp_path: Path) -> None:
    """A directory, which need not exist yet, or an address."""
    assert isinstance(open_history(str(tmp_path / "later"), averaged), ParquetHistory)
    (tmp_path / "table/_delta_log").mkdir(parents=True)
    assert isinstance(open_history(str(tmp_path / "table"), averaged), DeltaHistory)
    assert isinstance(open_history("s3://bucket/table", averaged), DeltaHistory)
    assert isinstance(open_history("http://127.0.0.1:8428", averaged), PrometheusHistory)
    assert isinstance(open_history("postgresql:///x?host=/run", averaged), PostgresHistory)


@pytest.mark.parametrize(
    ("where", "error", "reason"),
    [
        ("/etc/hostname", UsageError, "is not a directory"),
        ("ftp://x", UsageError, "expected a directory, s3"),
        ("s3://", ConfigError, "history: 's3://': expected a path or s3://bucket/prefix"),
        ("s3://a:secret@b/c", ConfigError, "keys are options"),
        ("http://", ConfigError, "is not an http:// address"),
        ("http://a:secret@b", ConfigError, "must not contain a password"),
        ("postgresql://a:secret@b/c", ConfigError, "must not contain a password"),
        ("postgresql://b:x/c", ConfigError, "is not a postgresql:// address"),
    ],
)
def test_invalid_store_is_refused(where: str, error: type[CcpipeError], reason: str) -> None:
    """Without showing a password."""
    with pytest.raises(error, match=reason) as raised:
        open_history(where, averaged)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("scheme", ["http", "postgresql"])
async def test_store_that_is_down_is_unavailable(scheme: str) -> None:
    """The error names its address."""
    port = free_port()
    history = open_history(f"{scheme}://127.0.0.1:{port}", averaged)
    with pytest.raises(UnavailableError, match=f"{port}.*refused"):
        await history.curves(QUERY)
    await history.close()


async def test_victoriametrics_is_read_with_password(tmp_path: Path) -> None:
    """From a file; without it the store refuses us."""
    secret = tmp_path / "password"
    secret.write_text("pa ss\n")
    flags = ("-httpAuth.username=anna", "-httpAuth.password=pa ss")
    with VictoriaMetrics(tmp_path / "store", *flags) as store:
        login = {"user": "anna", "password_file": str(secret)}
        history = open_history(store.url, averaged, **login)
        assert (await history.curves(QUERY)).curves == []
        await history.close()
        history = open_history(store.url, averaged)
        with pytest.raises(DeniedError, match="401"):
            await history.curves(QUERY)
        await history.close()


async def test_postgres_refuses_wrong_password_and_missing_tables(
    server: Server, tmp_path: Path
) -> None:
    """The messages name the reason; a read-only history creates no tables."""
    database = await server.database()
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong")
    history = open_history(server.url(database), averaged, password_file=str(wrong))
    with pytest.raises(DeniedError, match="password authentication failed"):
        await history.curves(QUERY)
    history = open_history(server.url(database), averaged, password_file=str(server.secret))
    with pytest.raises(ConfigError, match="does not exist"):
        await history.curves(QUERY)
    await history.close()
