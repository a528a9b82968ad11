"""Rules on payloads of eight lines: with few known field names, and with very many."""

from typing import Any

from benchmarks.payloads import payload, series
from benchmarks.timing import Result, rate
from ccpipe.formats.lineprotocol import SeriesTable
from ccpipe.formats.lineprotocol.decoder import decode_in_python
from ccpipe.pipeline import Translator
from ccpipe.translate.rules.aggregate import Aggregate
from ccpipe.translate.rules.convert import Convert
from ccpipe.translate.rules.relabel import Rename, Tag
from ccpipe.translate.rules.select import Drop, Select

KNOWN = (1, 900_000)
"""Field names in a table, as after a publisher of random names."""

RULES: dict[str, Translator[Any, Any]] = {
    "select": Select(kinds=["metric"], nodes=["f*"]),
    "drop": Drop(kinds=["event"]),
    "rename": Rename(names={"flops_*": "*_flops"}),
    "tag": Tag(add={"site": "here"}),
    "convert": Convert(to="GHz", unit="MHz", names=["clock"]),
    "aggregate": Aggregate(function="sum", of="hwthread", per="node"),
}


def rules() -> dict[str, list[Result]]:
    """Measure each rule, with each number of known field names."""
    keys = [key for key in series() if "type=hwthread" in key][:8]
    text = payload([f"{key} value={number}.5 1740027951" for number, key in enumerate(keys)])
    results: dict[str, list[Result]] = {name: [] for name in RULES}
    for known in KNOWN:
        table = SeriesTable()
        for number in range(known - 1):
            table.add_field(b"f%d" % number)
        lines = decode_in_python(text, table, "s", lenient=False)
        for name, rule in RULES.items():
            speed = rate(lambda: rule.feed(lines), len(keys))  # noqa: B023 - called at once
            results[name].append(Result(f"{known:,} known field names", speed))
    return results
