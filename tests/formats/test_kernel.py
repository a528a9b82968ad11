"""``CCPIPE_KERNEL`` selects the compiled kernel or the Python code; without a kernel all works."""

import json.decoder

import pytest

from ccpipe.errors import ConfigError
from ccpipe.formats import kernel


def test_a_kernel_is_taken_where_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the Python code is asked for; any module serves to test that."""
    monkeypatch.delenv("CCPIPE_KERNEL", raising=False)
    assert kernel.load_kernel("json", "decoder") is json.decoder
    monkeypatch.setenv("CCPIPE_KERNEL", "compiled")
    assert kernel.load_kernel("json", "decoder") is json.decoder
    monkeypatch.setenv("CCPIPE_KERNEL", "python")
    assert kernel.load_kernel("json", "decoder") is None


def test_a_missing_kernel_is_an_error_only_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CCPIPE_KERNEL", raising=False)
    assert kernel.load_kernel("ccpipe", "_no_such_kernel") is None
    monkeypatch.setenv("CCPIPE_KERNEL", "compiled")
    with pytest.raises(ConfigError, match=r"CCPIPE_KERNEL asks .*_no_such_kernel"):
        kernel.load_kernel("ccpipe", "_no_such_kernel")


def test_another_word_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCPIPE_KERNEL", "Compiled")
    with pytest.raises(ConfigError, match="'Compiled', not one of python, compiled"):
        kernel.load_kernel("json", "decoder")
