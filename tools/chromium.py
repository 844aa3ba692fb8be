"""Find a Chromium for `make test-browser`, install one where that is allowed, or say how.

python tools/chromium.py    print where it is
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Final

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL: Final = ("apt-get", "install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core")


def chromium() -> str:
    """The path of a browser; stops the program with the command that installs one if there is none."""
    named = os.environ.get("FOREBAY_CHROMIUM")
    if named:
        return named
    if _found() is None and shutil.which("apt-get") and os.geteuid() == 0:
        subprocess.run(["apt-get", "update", "-q"], check=False, stdout=sys.stderr)
        subprocess.run(INSTALL, check=False, stdout=sys.stderr)
    found = _found()
    if found is None:
        raise SystemExit(
            f"there is no Chromium here: sudo {' '.join(INSTALL)}, or name one in FOREBAY_CHROMIUM"
        )
    return found


def _found() -> str | None:
    return next((path for path in map(shutil.which, NAMES) if path), None)


if __name__ == "__main__":
    print(chromium())
