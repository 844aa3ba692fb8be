"""Find a Chromium for `make test-browser`, install one where that is allowed, or say how.

python tools/chromium.py    print where it is; status 69 where there is none and none can be installed
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL: Final = ("install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core")
# No wait for a network that does not answer. The program itself is never stopped: packages would be left
# half set up.
APT: Final = ("apt-get", "-o", "Acquire::http::Timeout=30", "-o", "Acquire::https::Timeout=30",
              "-o", "Acquire::Retries=1", "-o", "DPkg::Lock::Timeout=60")  # fmt: skip


# Where it runs as root, without a screen, in a container with little shared memory.
TRIED: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--dump-dom",
    "about:blank",
)
TRIED_SECONDS: Final = 120
UNAVAILABLE: Final = 69  # as sysexits.h has it; a fault of our own is 1


def chromium() -> str:
    """The path of a browser that starts; or else the program stops with the command to install one."""
    named = os.environ.get("FOREBAY_CHROMIUM")
    if named:
        return named
    found = _found()
    if found is None and shutil.which("apt-get") and os.geteuid() == 0:
        for command in (("update", "-qq"), INSTALL):
            _run((*APT, *command))
        found = _found()
    if found is None:
        print(
            f"there is no Chromium here: sudo apt-get {' '.join(INSTALL)}, or name one in FOREBAY_CHROMIUM",
            file=sys.stderr,
        )
        raise SystemExit(UNAVAILABLE)
    return found


def _run(command: Sequence[str]) -> None:
    """Nothing is said if it goes well."""
    asking = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, check=False, capture_output=True, stdin=subprocess.DEVNULL, env=asking)
    if done.returncode:
        sys.stderr.buffer.write(done.stdout + done.stderr)


def _found() -> str | None:
    return next((path for path in map(shutil.which, NAMES) if path and _starts(path)), None)


def _starts(path: str) -> bool:
    """Return whether this browser runs here. Some systems have a script of that name that only says where to
    get one, and one without its libraries is there as well."""
    try:
        done = subprocess.run([path, *TRIED], check=False, capture_output=True, timeout=TRIED_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"<body>" in done.stdout


if __name__ == "__main__":
    print(chromium())
