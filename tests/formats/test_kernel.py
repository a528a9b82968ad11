"""``CCPIPE_KERNEL`` selects the compiled kernel or the Python fallback."""

import json.decoder

import pytest

from ccpipe.errors import ConfigError
from ccpipe.formats import kernel


def test_kernel_is_loaded_when_present(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless ``CCPIPE_KERNEL=python``; any module can serve as kernel here."""
    monkeypatch.delenv("CCPIPE_KERNEL", raising=False)
    assert kernel.load_kernel("json", "decoder") is json.decoder
    monkeypatch.setenv("CCPIPE_KERNEL", "compiled")
    assert kernel.load_kernel("json", "decoder") is json.decoder
    monkeypatch.setenv("CCPIPE_KERNEL", "python")
    assert kernel.load_kernel("json", "decoder") is None


def test_kernel_is_required_only_when_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CCPIPE_KERNEL", raising=False)
    assert kernel.load_kernel("ccpipe", "_no_such_kernel") is None
    monkeypatch.setenv("CCPIPE_KERNEL", "compiled")
    with pytest.raises(ConfigError, match=r"CCPIPE_KERNEL requires .*_no_such_kernel"):
        kernel.load_kernel("ccpipe", "_no_such_kernel")


def test_kernel_selection_rejects_unknown_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCPIPE_KERNEL", "Compiled")
    with pytest.raises(ConfigError, match="'Compiled', not one of python, compiled"):
        kernel.load_kernel("json", "decoder")
