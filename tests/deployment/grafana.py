"""Grafana's side of the dashboards: its schema, and the queries that it sends for them."""

import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from types import NoneType
from typing import Any, Literal, NamedTuple, Protocol, Union, get_args, get_origin, get_type_hints

import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.paths import ROOT
from tests.servers.victoriametrics import VictoriaMetrics

DIRECTORY = ROOT / "bridges/grafana"
DASHBOARDS: Mapping[str, Mapping[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in sorted(DIRECTORY.glob("dashboards/*.json"))
}
SOURCES = yaml.safe_load((DIRECTORY / "provisioning/datasources/ccpipe.yml").read_text())[
    "datasources"
]
UNITS = {unit for name, unit in vars(units).items() if name[0] != "_" and isinstance(unit, str)}


# The schema


def violations(document: Mapping[str, Any]) -> list[str]:
    """Return what Grafana's schema does not know in a dashboard, or knows with another type.

    The classes of the SDK are the schema, of panels' options and of queries too; they skip unknown
    keys, and check no types, so both are done here.
    """
    register_default_plugins()
    read = Dashboard.from_json(dict(document))
    known = json.loads(json.dumps(read, cls=JSONEncoder))
    return [*_unknown_keys(document, known, ""), *_wrong_types(read, Dashboard, "")]


def _unknown_keys(given: object, known: object, path: str) -> Iterator[str]:
    if isinstance(given, Mapping) and isinstance(known, Mapping):
        for key, value in given.items():
            if key in known:
                yield from _unknown_keys(value, known[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}: unknown"
    elif isinstance(given, list) and isinstance(known, list):
        for number, pair in enumerate(zip(given, known, strict=True)):
            yield from _unknown_keys(*pair, f"{path}[{number}]")


def _wrong_types(value: object, hint: Any, path: str) -> Iterator[str]:
    arguments = get_args(hint)
    if get_origin(hint) is Union:
        possible = [each for each in arguments if each is not NoneType or value is None]
        yield from min((list(_wrong_types(value, each, path)) for each in possible), key=len)
    elif get_origin(hint) is list and isinstance(value, list):
        for number, each in enumerate(value):
            yield from _wrong_types(each, arguments[0], f"{path}[{number}]")
    elif not _has_type(value, hint):
        yield f"{path}: {value!r} is not {hint}"
    elif hasattr(value, "to_json"):  # a part of the schema
        for name, each in get_type_hints(type(value)).items():
            yield from _wrong_types(getattr(value, name), each, f"{path}.{name}")


def _has_type(value: object, hint: Any) -> bool:
    if hint in (object, Any):
        return True
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return value in list(hint)
    allowed = (int, float) if hint is float else get_origin(hint) or hint
    return isinstance(value, allowed) and isinstance(value, bool) == (hint is bool)


# The queries


class Ask(Protocol):
    """Queries PostgreSQL."""

    async def __call__(self, query: str) -> list[Mapping[str, Any]]:
        """Return rows with their columns by name."""


class Result(NamedTuple):
    """What a query of a panel returned."""

    where: str
    """Dashboard, panel and name of the query."""
    query: str
    series: Sequence[tuple[Mapping[str, str], Sequence[float]]]
    """Labels and values."""

    @property
    def is_above_zero(self) -> bool:
        return any(number > 0 for _, numbers in self.series for number in numbers)


class Grafana:
    """Sends the queries of dashboards as Grafana does, for the last hour."""

    SECONDS = 3600

    def __init__(self, store: VictoriaMetrics, ask: Ask | None = None) -> None:
        self.store, self.ask = store, ask
        store.get("/internal/force_flush")
        self.end = time.time()
        scrape = next(each["jsonData"]["timeInterval"] for each in SOURCES if each["isDefault"])
        # An hour divided by the pixels of a panel is less than the data source's minimum.
        self.interval = {"prometheus": int(scrape.removesuffix("s")), "sql": 60}

    @property
    def span(self) -> dict[str, str]:
        return {"start": str(self.end - self.SECONDS), "end": str(self.end)}

    def has_scraped(self) -> bool:
        """Return whether each process had written two points of a graph ago."""
        ago = f"offset {2 * self.interval['prometheus']}s"
        query = (
            f"min(ccpipe_last_write_timestamp_seconds {ago}) > 0 and count(up {ago}) == count(up)"
        )
        return bool(self._instant(query))

    def _instant(self, query: str) -> Sequence[Any]:
        path = "/api/v1/query"
        found: Sequence[Any] = self._get(path, {"query": query, "time": str(self.end)})["result"]
        return found

    def alerts(self) -> set[str]:
        """Return the alerts of Prometheus whose expressions are true now."""
        rules = [
            rule
            for path in sorted((ROOT / "bridges/prometheus/rules").glob("*.yml"))
            for group in yaml.safe_load(path.read_text())["groups"]
            for rule in group["rules"]
        ]
        return {rule["alert"] for rule in rules if self._instant(rule["expr"])}

    async def empty(self, name: str, chosen: Mapping[str, str] | None = None) -> set[str]:
        """Return which queries of a dashboard return nothing."""
        return {each.where for each in await self.results(name, chosen) if not each.series}

    async def options(self, name: str, variable: str) -> list[str]:
        """Return what a dashboard offers for a variable, with everything chosen before it."""
        variables = dict[str, str]()
        for each in DASHBOARDS[name]["templating"]["list"]:
            values = await self._options(each, variables)
            if each["name"] == variable:
                return values
            variables[each["name"]] = _interpolated(each, values)
        raise AssertionError(variable)

    async def results(self, name: str, chosen: Mapping[str, str] | None = None) -> list[Result]:
        """Return what all queries of a dashboard return, with variables as chosen, or all."""
        dashboard, variables = DASHBOARDS[name], dict[str, str]()
        for variable in dashboard["templating"]["list"]:
            name_ = variable["name"]
            values = [chosen[name_]] if chosen and name_ in chosen else None
            values = values or await self._options(variable, variables)
            assert values, variable["query"]
            variables[name_] = _interpolated(variable, values)
        return [
            Result(
                f"{name}: {panel['title']}: {target['refId']}",
                target.get("expr") or target["rawSql"],
                await self._ask(target, variables),
            )
            for panel in dashboard["panels"]
            for target in panel["targets"]
        ]

    async def _options(self, variable: Mapping[str, Any], others: Mapping[str, str]) -> list[str]:
        query = _replaced(variable["query"], others)
        if variable["datasource"]["type"] != "prometheus":
            assert self.ask is not None
            return [next(iter(row.values())) for row in await self.ask(query)]
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
        assert found, query
        path = f"/api/v1/label/{found[2]}/values"
        values: list[str] = self._get(path, {"match[]": found[1]})
        return values

    async def _ask(
        self, target: Mapping[str, Any], variables: Mapping[str, str]
    ) -> list[tuple[Mapping[str, str], list[float]]]:
        if "expr" in target:
            series = self._metrics(target["expr"], variables)
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert all(label in labels for labels, _ in series), (target["expr"], label)
            return series
        assert self.ask is not None
        query = self._sql(target["rawSql"], variables)
        rows = await self.ask(query)
        if target["format"] == "time_series":
            times = [row["time"] for row in rows]
            assert times == sorted(times), query
        texts = [{k: v for k, v in row.items() if isinstance(v, str)} for row in rows]
        numbers = [[v for v in row.values() if isinstance(v, int | float)] for row in rows]
        assert not any(value is None for row in rows for value in row.values()), query
        return list(zip(texts, numbers, strict=True))

    def _metrics(
        self, expression: str, variables: Mapping[str, str]
    ) -> list[tuple[Mapping[str, str], list[float]]]:
        step = self.interval["prometheus"]
        own = {
            "__rate_interval": f"{4 * step}s", "__interval": f"{step}s",
            "__range": f"{self.SECONDS}s",
        }  # fmt: skip
        query = _replaced(expression, {**variables, **own})
        found = self._get("/api/v1/query_range", {"query": query, "step": str(step)})["result"]
        series = [(each["metric"], [float(v) for _, v in each["values"]]) for each in found]
        assert not any(math.isnan(value) for _, values in series for value in values), query
        return series

    def _sql(self, query: str, variables: Mapping[str, str]) -> str:
        seconds = self.interval["sql"]
        first, last = (
            datetime.fromtimestamp(float(each), UTC).isoformat() for each in self.span.values()
        )
        query = _replaced(query, {**variables, "__interval": f"{seconds}s"})
        query = re.sub(r"\$__timeFilter\((\w+)\)", rf"\1 BETWEEN '{first}' AND '{last}'", query)
        query = re.sub(
            rf"\$__timeGroupAlias\((\w+), {seconds}s\)",
            rf'floor(extract(epoch from \1)/{seconds})*{seconds} AS "time"',
            query,
        )
        assert "$_" not in query, query
        return query

    def _get(self, path: str, query: Mapping[str, str]) -> Any:
        answer = json.loads(self.store.get(path, {"nocache": "1", **self.span, **query}))
        assert answer["status"] == "success", answer
        return answer["data"]


def _interpolated(variable: Mapping[str, Any], values: Sequence[str]) -> str:
    if variable["datasource"]["type"] != "prometheus":
        return ",".join("'" + value.replace("'", "''") + "'" for value in values)
    if not (variable["multi"] or variable["includeAll"]):
        return values[0].replace("\\", r"\\").replace('"', r"\"")
    escaped = [re.sub(r"([$^*{}\[\]'+?.()|])", r"\\\\\1", value) for value in values]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


def _replaced(text: str, variables: Mapping[str, str]) -> str:
    """Replace Grafana's variables; unknown ones, and macros of SQL, stay."""
    return re.sub(r"\$(\w+)(?![\w(])", lambda found: variables.get(found[1], found[0]), text)
