"""Notifications to systemd for a service of ``Type=notify``; without systemd they do nothing.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

import contextlib
import os
import socket
import time


def notify(*lines: str) -> None:
    """Send lines such as ``READY=1`` to systemd; never fails, even without systemd."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    if address.startswith("@"):  # an abstract socket
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.sendto("\n".join(lines).encode(), address)


def reloading() -> None:
    notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")


def watchdog() -> float | None:
    """Return the seconds within which ``WATCHDOG=1`` is due; None without a watchdog."""
    period = os.environ.get("WATCHDOG_USEC", "")
    meant = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(period) / 1e6 if meant and period.isdecimal() and int(period) else None
