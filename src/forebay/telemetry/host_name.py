"""Name of this machine."""

from __future__ import annotations

import os


def host_name() -> str:
    """Return the host name of this machine."""
    if hasattr(os, "uname"):
        return os.uname().nodename
    import socket  # noqa: PLC0415 - on Windows alone; it takes longer to load than the answer is worth

    return socket.gethostname()
