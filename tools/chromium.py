"""Find a Chromium for `make test-browser`, install one where that is allowed, or say how.

python tools/chromium.py    print where it is
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

MOST_SECONDS: Final = 300
NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
UPDATE: Final = ("apt-get", "update", "-qq")
INSTALL: Final = ("apt-get", "install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core")


def chromium() -> str:
    """The path of a browser; stops the program with the command that installs one if there is none."""
    named = os.environ.get("FOREBAY_CHROMIUM")
    if named:
        return named
    if _found() is None and shutil.which("apt-get") and os.geteuid() == 0:
        for command in (UPDATE, INSTALL):
            _run(command)
    found = _found()
    if found is None:
        raise SystemExit(
            f"there is no Chromium here: sudo {' '.join(INSTALL)}, or name one in FOREBAY_CHROMIUM"
        )
    return found


def _run(command: Sequence[str]) -> None:
    """Nothing is said if it goes well, and nobody waits for a network that does not answer."""
    asking = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(command, check=False, capture_output=True, timeout=MOST_SECONDS, env=asking)
    except subprocess.TimeoutExpired:
        print(f"{' '.join(command)} takes too long", file=sys.stderr)
        return
    if done.returncode:
        sys.stderr.buffer.write(done.stdout + done.stderr)


def _found() -> str | None:
    return next((path for path in map(shutil.which, NAMES) if path), None)


if __name__ == "__main__":
    print(chromium())
