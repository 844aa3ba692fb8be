"""Run tests on every Python that Forebay supports and this machine has.

python tools/pythons.py --list            say which are here
python tools/pythons.py [WORD]...         run pytest with these words on each, by default on the model, the
                                          app, the command line and the package

Each gets an environment of its own in .venv-pythons. Which versions are supported is said by the classifiers
in pyproject.toml. The status is 1 if a test fails somewhere, and 2 if there is no Python at all.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from glob import escape, glob
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
HOMES: Final = ROOT / ".venv-pythons"
USUAL: Final = ("tests/domain", "tests/app", "tests/house", "tests/packaging", "tests/cli/test_main.py")
NEEDED: Final = ".[dev-extended,dev-page]"  # whatever tests it is given
ASK: Final = "import sys; print('%d.%d' % sys.version_info[:2])"


def supported() -> list[str]:
    """The versions that the package says it runs on, the oldest first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = [
        re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", one) for one in project["classifiers"]
    ]
    return [match[1] for match in found if match]


def located(version: str) -> str | None:
    """The interpreter of this version: the one that runs this, one on the path under its usual name, or the
    newest one that pyenv has."""
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    # `glob.glob` passes over folders that this user may not read, where `Path.glob` raises; and `expanduser`
    # leaves the tilde where there is no home.
    pyenv = os.path.expanduser(os.environ.get("PYENV_ROOT", "~/.pyenv"))
    others = sorted(
        glob(f"{escape(pyenv)}/versions/{version}.*/bin/python{version}"),
        key=lambda path: _numbers(Path(path).parts[-3]),
    )
    found = [shutil.which(f"python{version}"), *reversed(others)]
    return next((one for one in found if one and _version(one) == version), None)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _version(python: str) -> str | None:
    """Return what an interpreter says of itself, or None where this user may not run it."""
    try:
        return subprocess.run([python, "-c", ASK], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return None


def environment(version: str, python: str) -> Path:
    """An environment with the project and all that its tests need; made once for each pyproject.toml."""
    if python == sys.executable:
        return Path(sys.executable)
    home, made_from = HOMES / version, (ROOT / "pyproject.toml").read_bytes()
    stamp = home / ".made-from"
    if not stamp.exists() or stamp.read_bytes() != made_from:
        subprocess.run([python, "-m", "venv", "--clear", str(home)], check=True)
        words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--editable", NEEDED]
        subprocess.run([str(home / "bin" / "python"), *words], cwd=ROOT, check=True)
        stamp.write_bytes(made_from)
    return home / "bin" / "python"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="only say which are here")
    options, words = parser.parse_known_args()
    here = {version: located(version) for version in supported()}
    for version, python in here.items():
        print(f"Python {version}: {python or 'not here'}", flush=True)
    known = {version: python for version, python in here.items() if python}
    if options.list or not known:
        return 0 if known else 2
    failed = [version for version, python in known.items() if _tested(version, python, words or [*USUAL])]
    missing = [version for version, python in here.items() if python is None]
    words_of = (", ".join(some) or "none" for some in (known, failed, missing))
    print("tested on {}; failed on {}; not here: {}".format(*words_of))
    return 1 if failed else 0


def _tested(version: str, python: str, words: list[str]) -> int:
    print(f"--- Python {version}", flush=True)
    made = environment(version, python)
    return subprocess.run([str(made), "-m", "pytest", "--quiet", *words], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
