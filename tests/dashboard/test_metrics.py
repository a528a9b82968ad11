"""What is known of metrics by their names."""

from ccpipe.dashboard.metrics import is_averaged, known_metrics


def test_what_collectors_declare_is_known() -> None:
    """Units and meanings; shares and temperatures are averaged, bytes and watts summed."""
    known = known_metrics()
    assert known["mem_used"].unit == "kB"
    assert known["mem_used"].meaning
    averaged = {name for name, metric in known.items() if metric.averaged}
    assert {"cpu_user", "nv_util", "temperature", "nv_sm_clock", "ipc"} <= averaged
    assert not averaged & {"mem_used", "cpu_power", "net_bytes_in_bw", "nv_compute_processes"}


def test_an_unknown_unit_is_summed() -> None:
    """As is none at all."""
    assert is_averaged("percent")
    assert not is_averaged("parsec")
    assert not is_averaged("")
