"""Errors that are told once."""

import logging

import pytest

from ccpipe.node.sampling.soft_errors import SoftErrors


def test_each_text_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Two of them with the same errors tell them both: each belongs to one collector."""
    one, other = SoftErrors(), SoftErrors()
    for errors in (one, one, other):
        errors.note("a")
        errors.note("b")
    assert [record.message for record in caplog.records] == ["a", "b", "a", "b"]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_an_unexpected_error_comes_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """It is somebody's mistake, who wants to know where."""
    try:
        raise ValueError("no luck")
    except ValueError as error:
        SoftErrors().note("a", error)
    assert "test_soft_errors.py" in caplog.text


def test_memory_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Texts that are never the same stop being told, rather than being remembered without end."""
    errors = SoftErrors()
    for number in range(5000):
        errors.note(str(number))
    assert len(caplog.records) == 1000
