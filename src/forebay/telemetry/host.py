"""The object with which programs enqueue and inspect: any thread, sync or async, also after a fork."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


def host_name() -> str:
    """What this machine is called."""
    if hasattr(os, "uname"):
        return os.uname().nodename
    import socket  # noqa: PLC0415 - on Windows alone; it takes longer to load than the answer is worth

    return socket.gethostname()
