"""One message, its categories and the rules of the specification."""

import msgspec
import pytest

from ccpipe.message import (
    CONTROL_METHODS,
    LOG_LEVELS,
    NODE_TYPES,
    Kind,
    Message,
    Uint,
    event,
    log,
    metric,
)

NODE = {"hostname": "e1208", "type": "node"}


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("value", Kind.METRIC),
        ("event", Kind.EVENT),
        ("log", Kind.LOG),
        ("control", Kind.CONTROL),
        ("Value", Kind.OTHER),
        ("usage_idle", Kind.OTHER),
        ("", Kind.OTHER),
    ],
)
def test_field_key_decides_kind(field: str, kind: Kind) -> None:
    """Each of the four keys of the specification is a category."""
    assert Kind.of(field) is kind
    assert Message("m", {}, 1.0, 1, field).kind is kind


def test_constructors_make_messages_without_problems() -> None:
    """The caller gives only the tags of the specification."""
    messages = [
        metric("cpu_load", 1.5, time=1, tags=NODE),
        metric("mem_used", Uint(2**64 - 1), time=1, tags={**NODE, "stype": "a", "stype-id": "b"}),
        event("job", "start_job", "{}", time=1, tags=NODE),
        *(log("scheduler", level, "text", time=1, tags=NODE) for level in LOG_LEVELS),
        *(Message("rapl", {**NODE, "method": m}, "limit", 1, "control") for m in CONTROL_METHODS),
        *(
            metric("flops", 1, time=1, tags={"hostname": "h", "type": kind, "type-id": "0"})
            for kind in NODE_TYPES
        ),
    ]
    assert [message.problems() for message in messages] == [[]] * len(messages)


def test_constructors_set_name_tag_payload_and_field() -> None:
    """As in the category's specification; the caller's tags are not changed."""
    tags = dict(NODE)
    assert metric("m", 2, time=3, tags=tags) == Message("m", NODE, 2, 3, "value")
    assert event("job", "stop_job", "{}", time=3, tags=tags) == Message(
        "job", {**NODE, "function": "stop_job"}, "{}", 3, "event"
    )
    assert log("ccb", "warn", "late", time=3, tags=tags) == Message(
        "ccb", {**NODE, "loglevel": "warn"}, "late", 3, "log"
    )
    assert tags == NODE


EVENT = {**NODE, "function": "start_job"}
LOG = {**NODE, "loglevel": "info"}
CONTROL = {**NODE, "method": "GET"}


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (Message("m", {"type": "node"}, 1, 1), "tag hostname is missing"),
        (Message("m", {"hostname": "", "type": "node"}, 1, 1), "tag hostname is missing"),
        (Message("m", {"hostname": "h"}, 1, 1), "tag type is missing"),
        (Message("m", {"hostname": "h", "type": ""}, 1, 1), "tag type is missing"),
        (
            Message("m", {"hostname": "h", "type": "LLC", "type-id": "0"}, 1, 1),
            (
                "tag type is 'LLC', not one of accelerator, core, die, hwthread, llc, memoryDomain,"
                " node, socket"
            ),
        ),
        (
            Message("m", {"hostname": "h", "type": "core"}, 1, 1),
            "tag type-id is missing, which type=core needs",
        ),
        (
            Message("m", {"hostname": "h", "type": "core", "type-id": ""}, 1, 1),
            "tag type-id is missing, which type=core needs",
        ),
        (Message("m", {**NODE, "stype-id": "eth0"}, 1, 1), "tag stype-id is present without stype"),
        (Message("m", {**NODE, "stype": "disk"}, 1, 1), "tag stype is present without stype-id"),
        (Message("m", NODE, 1), "the timestamp is missing"),
        (Message("m", NODE, "P0", 1), "a metric's value must be a number, not 'P0'"),
        (Message("m", NODE, True, 1), "a metric's value must be a number, not True"),
        (Message("job", EVENT, 1, 1, "event"), "field event must be a string, not 1"),
        (Message("job", NODE, "{}", 1, "event"), "tag function is missing, which an event needs"),
        (
            Message("job", {**NODE, "function": ""}, "{}", 1, "event"),
            "tag function is missing, which an event needs",
        ),
        (Message("ccb", LOG, 1.5, 1, "log"), "field log must be a string, not 1.5"),
        (Message("ccb", NODE, "text", 1, "log"), "tag loglevel is missing"),
        (
            Message("ccb", {**NODE, "loglevel": "INFO"}, "text", 1, "log"),
            "tag loglevel is 'INFO', not one of debug, info, warn, error",
        ),
        (
            Message("rapl", CONTROL, False, 1, "control"),
            "field control must be a string, not False",
        ),
        (Message("rapl", NODE, "", 1, "control"), "tag method is missing"),
        (
            Message("rapl", {**NODE, "method": "get"}, "", 1, "control"),
            "tag method is 'get', not one of GET, PUT",
        ),
        (
            Message("cpu", NODE, 1, 1, "usage_idle"),
            "unknown field usage_idle (expected one of value, event, log, control)",
        ),
    ],
)
def test_problems_name_each_broken_rule_and_nothing_else(message: Message, problem: str) -> None:
    assert message.problems() == [problem]


def test_problems_name_all_broken_rules() -> None:
    """A long text is shortened in the sentence."""
    problems = Message("m", {}, "x" * 1000).problems()
    assert [problem[:20] for problem in problems] == [
        "tag hostname is miss",
        "tag type is missing",
        "a metric's value mus",
        "the timestamp is mis",
    ]
    assert max(map(len, problems)) < 100


def test_message_is_immutable() -> None:
    """Messages of one series share their tags, so no caller may change them."""
    with pytest.raises(AttributeError):
        metric("m", 1, time=1, tags=NODE).value = 2  # type: ignore[misc]
    assert msgspec.structs.replace(metric("m", 1, time=1, tags=NODE), value=2).value == 2
