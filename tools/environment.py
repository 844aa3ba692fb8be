"""Install sets of development packages into .venv: the extras `dev-...` of pyproject.toml.

python -m tools.environment SET...     `run`, `test`, `check` and so on; `all` is their union, the extra `dev`

Any Python that is new enough runs this: it needs the standard library alone. A file .venv/.ready-SET marks
each set that is installed, also those that an installed set contains.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

from tools import progress

ROOT: Final = Path(__file__).resolve().parent.parent
HOME: Final = ROOT / ".venv"
ALL: Final = "all"
_INCLUDED: Final = re.compile(r"forebay\[([\w,-]+)\]")


def requirements(name: str) -> list[str]:
    """Return what a set names itself: packages, and other sets as `forebay[...]`."""
    extra = _extra(name)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: dict[str, list[str]] = known["optional-dependencies"]
    if extra not in found:
        sets = sorted(one.removeprefix("dev-") for one in found if one.startswith("dev-"))
        raise SystemExit(f"pyproject.toml has no extra {extra}; there are {', '.join([*sets, ALL])}")
    return found[extra]


def contained(name: str) -> set[str]:
    """Return the names of a set and of all that it contains."""
    found = {name}
    for one in requirements(name):
        if match := _INCLUDED.fullmatch(one):
            for extra in match[1].split(","):
                found |= contained(extra.removeprefix("dev-"))
    return found


def _extra(name: str) -> str:
    return "dev" if name == ALL else f"dev-{name}"


def create(home: Path = HOME) -> Path:
    """Create the environment unless its Python runs; return that Python."""
    python = home / "bin" / "python"
    if not _runs(python):
        what = f"{home.name}: create it with Python {platform.python_version()}"
        progress.run(what, [sys.executable, "-m", "venv", "--clear", str(home)], cwd=ROOT)
    return python


def _runs(python: Path) -> bool:
    try:
        return not subprocess.run([python, "-c", ""], check=False).returncode
    except OSError:
        return False


def install(name: str, home: Path = HOME) -> None:
    """Install the project with a set, and mark what is installed."""
    python = create(home)
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    command = [*pip, "--progress-bar", "off", "--editable", f".[{_extra(name)}]"]
    progress.run(f"{home.name}: install the packages of {_extra(name)}", command, cwd=ROOT)
    for one in contained(name):
        (home / f".ready-{one}").touch()


def main() -> int:
    for name in sys.argv[1:]:
        requirements(name)
        try:
            install(name)
        except progress.Failed as exc:
            print(
                f"The packages of {_extra(name)} cannot be installed: {exc}; its last lines are above. "
                "If they name a connection or no matching package, connect to the network or set "
                "PIP_INDEX_URL to a package index. Then repeat the command.",
                file=sys.stderr,
            )
            return os.EX_UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
