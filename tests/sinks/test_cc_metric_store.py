"""``CcMetricStoreSink`` against the real cc-metric-store, where it was built."""

import base64
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from ccpipe.errors import DeniedError, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import decode, encode, to_lines
from ccpipe.message import Message
from ccpipe.sinks.cc_metric_store import CcMetricStoreSink
from tests.bridges.clustercockpit import peer
from tests.bridges.test_clustercockpit_backend import SECRETS
from tests.bridges.test_clustercockpit_store import Store
from tests.conftest import program
from tests.sinks.answers import Answers
from tests.sinks.conftest import NOON, SECOND, Given, carry, metric

NOW = int(time.time()) // 60 * 60 * SECOND
METRICS = {"cpu_load": {"frequency": 10, "aggregation": None}}


def jwt(directory: Path, expires: int) -> str:
    line = next(line for line in SECRETS.splitlines() if line.startswith("JWT_PRIVATE_KEY"))
    seed = base64.b64decode(line.partition("=")[2].strip('"'))[:32]
    der = bytes.fromhex("302e020100300506032b657004220420") + seed
    (directory / "key.der").write_bytes(der)
    claims = {"sub": "bridge", "roles": ["api"], "exp": expires}
    parts = [json.dumps(part).encode() for part in ({"alg": "EdDSA", "typ": "JWT"}, claims)]
    text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    (directory / "text").write_bytes(text)
    command = ["pkeyutl", "-sign", "-rawin", "-keyform", "DER", "-inkey", directory / "key.der"]
    signed = subprocess.run(
        [str(program("openssl", "openssl")), *map(str, command), "-in", str(directory / "text")],
        capture_output=True,
        check=True,
    )
    return (text + b"." + base64.urlsafe_b64encode(signed.stdout).rstrip(b"=")).decode()


class GuardedStore(Store):
    """A store that requires a token."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "", METRICS, "unused")
        config: dict[str, Any] = json.loads((directory / "config.json").read_text())
        del config["nats"]
        del config["metric-store"]["nats-subscriptions"]
        line = next(line for line in SECRETS.splitlines() if line.startswith("JWT_PUBLIC_KEY"))
        config["main"]["jwt-public-key"] = line.partition("=")[2].strip('"')
        (directory / "config.json").write_text(json.dumps(config))
        self.token = jwt(directory, int(time.time()) + 3600)
        self.headers = {"Authorization": f"Bearer {self.token}"}


async def test_metric_store_stores_lines_in_seconds(tmp_path: Path) -> None:
    """With a token, from any precision; lines it would misfile become dead letters."""
    peer("cc-metric-store")
    store = GuardedStore(tmp_path / "store")
    (tmp_path / "token").write_text(store.token)
    async with store:
        sink = CcMetricStoreSink(url=store.url, token_file=str(tmp_path / "token"))
        times = [NOW - 40 * SECOND + n * 10 * SECOND for n in range(4)]
        good = [Message("cpu_load", {"cluster": "fritz", "hostname": "n1", "type": "node"},
                        n if n % 2 else n + 0.5, at) for n, at in enumerate(times)]  # fmt: skip
        bad = [
            metric("text", time=NOW), metric(True, time=NOW),
            Message("cpu_load", {"hostname": "n1"}, 9.0, NOW),
            Message("cpu_load", {"cluster": "fritz", "hostname": "n1"}, 9.0, NOW, "other"),
        ]  # fmt: skip
        payload = encode([*good[:2], *bad, *good[2:]], precision="ns")
        letters = await carry(Given(decode(payload)), sink)
        assert len(letters) == 4
        assert await carry(Given(good), sink) == []  # once more: it replaces itself
        begin = times[0] // SECOND
        (values,) = store.values([good[0]], begin, begin + 40)
        assert [value for value in values if value is not None] == [0.5, 1, 2.5, 3]


async def test_check_denies_missing_or_expired_token(tmp_path: Path) -> None:
    peer("cc-metric-store")
    async with GuardedStore(tmp_path / "store") as store:
        with pytest.raises(DeniedError, match="Use JWT"):
            await CcMetricStoreSink(url=store.url).check()
        (tmp_path / "old").write_text(jwt(tmp_path, 1000))
        with pytest.raises(DeniedError, match="expired"):
            await CcMetricStoreSink(url=store.url, token_file=str(tmp_path / "old")).check()


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (metric("text"), "numbers only"),
        (metric(True), "numbers only"),
        (Message("m", {"cluster": "c", "hostname": "n"}, 1.0, NOON, "x"), "field 'value' only"),
        (Message("m", {"hostname": "n"}, 1.0, NOON), "cluster or hostname is missing"),
        (Message("m", {"cluster": "c"}, 1.0, NOON), "cluster or hostname is missing"),
    ],
)
async def test_lines_it_would_misfile_are_rejected(
    answers: Answers, record: Message, reason: str
) -> None:
    """They are named before anything is sent, each time."""
    answers.status = 200
    async with CcMetricStoreSink(url=answers.url) as sink:
        for _ in range(2):
            with pytest.raises(RejectedError, match=reason) as caught:
                await sink.write(to_lines([metric(1.0), record, metric(2.0)]))
            assert caught.value.indices == [1]
        assert len(answers.requests) == 1


async def test_lines_in_seconds_are_sent_unchanged(answers: Answers) -> None:
    """Other units are converted, and a missing time is replaced by the current one."""
    answers.status = 200
    line = b"m,cluster=c,host=n,type=node value=1.5 %b\n"
    async with CcMetricStoreSink(url=answers.url) as sink:
        await sink.write(decode(line % b"1740052800"))
        await sink.write(decode(line % b"1740052800123456789"))
        await sink.write(decode(line % b""))
        answers.text = "<html>"
        with pytest.raises(UnavailableError):
            await sink.write(to_lines([metric(1.0)]))
    assert answers.bodies[1:3] == [line % b"1740052800"] * 2
    (sent,) = decode(answers.bodies[3])
    assert sent.time
    assert abs(sent.time // SECOND - time.time()) < 600
