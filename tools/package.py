"""Build the sdist and the wheel as they would be released, and try them.

python tools/package.py [--out dist]

The sdist is made from the files that git knows and from the built page of the dashboard, the wheel from the
sdist alone: without network and without Node. Both are made twice, on another day and under another umask,
and must be the same to the byte. The wheel is then installed into an empty environment and
asked for its version.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
STATIC: Final = Path("src/forebay/dashboard/static")
# A fixed time for builds without a commit: midnight of 1 January 2026.
USUAL_EPOCH: Final = "1767225600"
# The build backend in a process that may neither reach a network nor start a program.
BUILD: Final = """
import sys

def refuse(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.posix_spawn", "os.system"):
        raise SystemExit(f"a build must do without {event}: {args!r:.200}")

sys.addaudithook(refuse)
from hatchling.build import build_sdist, build_wheel
print({"sdist": build_sdist, "wheel": build_wheel}[sys.argv[1]](sys.argv[2]))
"""
TRIAL: Final = "import forebay, forebay.testing, pytest_forebay; print(forebay.__file__)"


def export(folder: Path) -> None:
    """The files of the project, as git knows them, with the page if it is built."""
    listed = _output_of(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], ROOT)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():  # one that was deleted and not committed yet is still on the list
            _copy(ROOT / name, folder / name)
    if (ROOT / STATIC).exists():
        shutil.copytree(ROOT / STATIC, folder / STATIC)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)  # neither times nor rights: a build must not depend on them


def build(kind: str, source: Path, out: Path) -> Path:
    """The sdist or the wheel of a folder, built offline."""
    out.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "SOURCE_DATE_EPOCH": epoch(), "PATH": os.defpath}
    env.pop("FOREBAY_SKIP_DASHBOARD", None)
    name = _output_of([sys.executable, "-c", BUILD, kind, str(out)], source, env).split()[-1]
    return out / name


def epoch() -> str:
    """The time of the commit, which two who build it share."""
    try:
        return _output_of(["git", "log", "-1", "--format=%ct"], ROOT).strip() or USUAL_EPOCH
    except SystemExit:
        return USUAL_EPOCH


def unpacked(sdist: Path, folder: Path) -> Path:
    """The one folder in an sdist."""
    # Python 3.11.4 brought filters, and Debian 12 has 3.11.2. The archive is our own: it needs none.
    filters: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, **filters)  # noqa: S202 - built a moment ago from this tree
    [root] = folder.iterdir()
    return root


def both(folder: Path) -> tuple[Path, Path]:
    """The sdist and the wheel, made in an empty folder."""
    export(folder / "source")
    sdist = build("sdist", folder / "source", folder / "dist")
    return sdist, build("wheel", unpacked(sdist, folder / "unpacked"), folder / "dist")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def installed(wheel: Path, folder: Path) -> Path:
    """An environment with the wheel and nothing else of ours; the folder of its programs.

    What the wheel needs is lent by the environment that runs this, so nothing is fetched. Its files are named
    by a path, which does not bring its own editable install of the project along.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    quietly = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    _output_of(
        [sys.executable, "-m", "pip", "--python", str(python), "install", *quietly, str(wheel)], folder
    )
    packages = Path(
        _output_of([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder)
    )
    (Path(str(packages).strip()) / "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder / "bin"


def tried(programs: Path) -> dict[str, object]:
    """Return the installed program's description of itself; it must be the installed one."""
    home = programs.parent.resolve()
    where = Path(_output_of([str(programs / "python"), "-c", TRIAL], home).strip())
    if home not in where.resolve().parents:
        raise SystemExit(f"forebay was imported from {where}, and not from {home}")
    version: dict[str, object] = json.loads(
        _output_of([str(programs / "forebay"), "version", "--json"], home)
    )
    return version


def _output_of(words: Sequence[str], folder: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)[:200]} has failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where to put them (dist)")
    out = parser.parse_args().out
    sys.path.insert(0, str(ROOT))
    from tools.dashboard import build as build_page  # noqa: PLC0415 - found only from the project's folder

    build_page()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = both(folder / "once")
        with umask(0o077):
            again = both(folder / "twice")
        for one, other in zip(made, again, strict=True):
            if digest(one) != digest(other):
                raise SystemExit(f"{one.name} is another when it is built again")
        version = tried(installed(made[1], folder / "venv"))
        if not version["has_dashboard"]:
            raise SystemExit("the wheel has no dashboard")
        out.mkdir(parents=True, exist_ok=True)
        for one in made:
            shutil.copyfile(one, out / one.name)
            print(f"{digest(one)}  {out / one.name}  {one.stat().st_size:,} bytes")
    print(
        f"forebay {version['forebay']} was installed from the wheel, and runs on Python {version['python']}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
