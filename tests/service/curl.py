"""`curl` for tests of what is written for the shell, also on a machine that has none."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

# What our pages and examples use of it: -s, -S, -f, -d, -H and one address.
STAND_IN: Final = """\
import argparse, sys, urllib.error, urllib.request

asked = argparse.ArgumentParser()
for short, long in (("-s", "--silent"), ("-S", "--show-error"), ("-f", "--fail")):
    asked.add_argument(short, long, action="store_true")
asked.add_argument("-d", "--data")
asked.add_argument("-H", "--header", action="append", default=[])
asked.add_argument("address")
said = asked.parse_args()
request = urllib.request.Request(said.address, None if said.data is None else said.data.encode())
for header in said.header:
    name, _, value = header.partition(":")
    request.add_header(name, value.strip())
try:
    answer = urllib.request.urlopen(request)
except urllib.error.HTTPError as exc:
    if said.fail:
        if said.show_error:
            print("curl: (22) The requested URL returned error:", exc.code, file=sys.stderr)
        sys.exit(22)
    answer = exc
except OSError:
    sys.exit(7)
sys.stdout.buffer.write(answer.read())
"""


def stand_in(folder: Path) -> Path:
    """A `curl` in this folder."""
    program = folder / "curl"
    program.write_text(f"#!{sys.executable}\n{STAND_IN}", encoding="utf-8")
    program.chmod(0o755)
    return program


def search_path(folder: Path) -> str:
    """Where a shell shall look for programs so that it finds `curl`."""
    found = os.environ.get("PATH", os.defpath)
    if shutil.which("curl") is None:
        return f"{stand_in(folder).parent}{os.pathsep}{found}"
    return found
