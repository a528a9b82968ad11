"""Delta tables on a local path or on S3-compatible storage: address, reading, and errors."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from ccpipe.config import mask, read_secret
from ccpipe.errors import ConfigError, DeniedError, MissingExtra, UnavailableError

PART_BYTES = 2**30
"""Size of a file in bytes from which it is uploaded in parts.

Every file is smaller, and so is one PUT: a killed bridge leaves no open upload, which nothing would
show but the provider's bill.
"""

os.environ.setdefault("DELTARS_UPLOAD_PART_SIZE", str(PART_BYTES))

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.fs as pa_fs
    from deltalake import (
        ColumnProperties,
        CommitProperties,
        DeltaTable,
        Transaction,
        WriterProperties,
        write_deltalake,
    )
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.fs import DeltaStorageHandler
except ImportError as missing:
    raise MissingExtra(missing.name or "deltalake", "delta") from None

__all__ = [
    "ColumnProperties",
    "CommitFailedError",
    "CommitProperties",
    "DeltaAddress",
    "DeltaTable",
    "TableNotFoundError",
    "Transaction",
    "WriterProperties",
    "pc",
    "write_deltalake",
]

CONFIGURATION: dict[str, str | None] = {"delta.dataSkippingStatsColumns": "time"}
"""Statistics in the log, by which readers choose files: all nodes and metrics are in each."""

TIMEOUTS = {
    "connect_timeout": "5s",
    "timeout": "30s",
    "max_retries": "2",
    "retry_timeout": "30s",
}
"""Limits of a request; the pipe repeats a write that fails."""


class DeltaAddress:
    """Where a table is, and how it is reached."""

    def __init__(
        self,
        url: str,
        *,
        endpoint: str = "",
        region: str = "",
        access_key: str = "",
        secret_key_file: str = "",
        option: str = "url",
    ) -> None:
        """Check the address: a path, or ``s3://bucket/prefix``.

        An address on S3 may have ``?endpoint=…&region=…`` as well. Without an access key, keys are
        found as AWS' own programs find them: environment, shared file, role of the machine. Raises
        ConfigError, naming the `option`, for another kind of address or one with a password.
        """
        self.shown = mask(url, "url")
        scheme, separator, _ = url.partition("://")
        self.is_local = not separator
        if self.is_local:
            self.uri = str(Path(url).expanduser().absolute())
            self._s3: dict[str, str] = {}
        else:
            parts = urlsplit(url)
            given = dict(parse_qsl(parts.query))
            if scheme != "s3" or not parts.hostname or parts.fragment:
                raise ConfigError(
                    f"{option}: {self.shown!r}: expected a path or s3://bucket/prefix"
                )
            if "@" in parts.netloc or given.keys() - {"endpoint", "region"}:
                hint = "?endpoint= and ?region= are its only parameters; keys are options"
                raise ConfigError(f"{option}: {self.shown!r}: {hint}")
            self.uri = f"s3://{parts.netloc}{parts.path}"
            self._s3 = given
        self._s3 |= {k: v for k, v in (("endpoint", endpoint), ("region", region)) if v}
        if self.is_local and (self._s3 or access_key or secret_key_file):
            raise ConfigError(
                f"{option}: {self.shown!r} is a path: endpoint and keys are for s3://"
            )
        if bool(access_key) != bool(secret_key_file):
            raise ConfigError("access_key and secret_key_file go together")
        self.access_key, self.secret_key_file = access_key, secret_key_file

    def options(self) -> dict[str, str]:
        """Return the options of the library; raises ConfigError if the key cannot be read."""
        if self.is_local:
            return {}
        options = {**TIMEOUTS, "aws_conditional_put": "etag"}
        if endpoint := self._s3.get("endpoint"):
            is_plain = endpoint.startswith("http://")
            options |= {"aws_endpoint": endpoint, "allow_http": str(is_plain).lower()}
        if region := self._s3.get("region") or (endpoint and "us-east-1"):
            options["aws_region"] = region
        if self.access_key:
            secret = read_secret("secret_key_file", self.secret_key_file)
            options |= {"aws_access_key_id": self.access_key, "aws_secret_access_key": secret}
        return options

    def open(self) -> DeltaTable:
        """Return the table as it is now.

        Raises TableNotFoundError without a table, else as ``errors()`` does.
        """
        with self.errors():
            return DeltaTable(self.uri, storage_options=self.options() or None)

    def create(self, schema: pa.Schema, partitions: list[str]) -> None:
        """Create the table if it is missing."""
        with self.errors():
            DeltaTable.create(
                self.uri,
                schema,
                mode="ignore",
                partition_by=partitions,
                configuration=CONFIGURATION,
                storage_options=self.options() or None,
            )

    def files(self) -> pa_fs.FileSystem:
        """Return the file system of the table's directory."""
        return pa_fs.PyFileSystem(DeltaStorageHandler(self.uri, self.options() or None))

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Raise DeniedError if the storage refuses us, UnavailableError for its other errors.

        TableNotFoundError, and the CommitFailedError of a conflict, are raised as they are.
        """
        try:
            yield
        except (TableNotFoundError, CommitFailedError):
            raise
        except (DeltaError, OSError) as error:
            raise self._reported(error) from None
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of the library; not an Exception
                raise
            raise self._reported(error) from None

    def _reported(self, error: BaseException) -> DeniedError | UnavailableError:
        text = f"{self.shown}: {_reason(str(error))}"
        return DeniedError(text) if re.search(_DENIED, str(error)) else UnavailableError(text)


_DENIED = "AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|403 Forbidden|Permission denied"


def _reason(text: str) -> str:
    """Return the cause within an error of the library: that of the server, else the last one."""
    found = re.search(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>", text)
    if found:
        return f"{found[1]}: {found[2]}"
    causes = re.sub(r"\x1b\[[0-9;]*m", "", text).split("↳")
    return " ".join(causes[-1].split())[-300:]
