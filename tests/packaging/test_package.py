"""The sdist and the wheel: whole, built without network or Node, the same each time, fit to be installed."""

from __future__ import annotations

import os
import subprocess
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple

import pytest

from forebay import __version__
from tools import package

# What `forebay[all]` brings; web frameworks and Sentry a program brings by itself.
WHOLE = {"cli", "crypto", "grpc", "otel", "postgres", "redis", "reload", "remote", "server"}
PAGE = "src/forebay/dashboard/static/index.html"


class Made(NamedTuple):
    source: Path
    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Build sdist and wheel from this project. Without a built page, a stand-in takes its place."""
    folder = tmp_path_factory.mktemp("package")
    package.export(folder / "source")
    page = folder / "source" / PAGE
    if not page.exists():
        page.parent.mkdir(parents=True)
        page.write_text("<!doctype html><title>a page</title>")
    sdist = package.build("sdist", folder / "source", folder / "dist")
    wheel = package.build("wheel", package.unpacked(sdist, folder / "unpacked"), folder / "dist")
    return Made(folder / "source", sdist, wheel)


@pytest.fixture(scope="module")
def programs(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return package.installed(made.wheel, tmp_path_factory.mktemp("venv") / "venv")


def in_wheel(made: Made) -> set[str]:
    with zipfile.ZipFile(made.wheel) as wheel:
        return set(wheel.namelist())


def in_sdist(made: Made) -> set[str]:
    with tarfile.open(made.sdist) as sdist:
        return {name.partition("/")[2] for name in sdist.getnames()}


def test_the_wheel_has_all_code_all_statements_and_the_page(made: Made) -> None:
    source = made.source / "src"
    wanted = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}

    names = in_wheel(made)

    assert sorted(wanted - names) == []
    assert {"forebay/py.typed", "pytest_forebay/py.typed", "forebay/dashboard/static/index.html"} <= names
    assert {name.partition("/")[0] for name in names} == {
        "forebay",
        "pytest_forebay",
        f"forebay-{__version__}.dist-info",
    }


def test_the_sdist_has_what_a_build_and_the_tests_need(made: Made) -> None:
    names = in_sdist(made)

    assert {PAGE, "hatch_build.py", "tools/dashboard.py", "dashboard/package-lock.json"} <= names
    assert {"tests/conftest.py", "docs/quickstart.md", "LICENSE", "CHANGELOG.md", "SECURITY.md"} <= names
    assert not [name for name in names if "node_modules" in name or name.endswith((".pyc", ".db"))]


def test_both_are_the_same_when_they_are_built_again_on_another_day(made: Made, tmp_path: Path) -> None:
    for path in made.source.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    with package.umask(0o077):
        sdist = package.build("sdist", made.source, tmp_path)
        wheel = package.build("wheel", package.unpacked(sdist, tmp_path / "unpacked"), tmp_path)

    assert package.digest(sdist) == package.digest(made.sdist)
    assert package.digest(wheel) == package.digest(made.wheel)


def test_a_build_without_the_page_that_would_need_a_network_says_so(made: Made, tmp_path: Path) -> None:
    source = package.unpacked(made.sdist, tmp_path / "unpacked")
    (source / PAGE).unlink()

    with pytest.raises(SystemExit, match=r"a build must do without subprocess.Popen|npm"):
        package.build("wheel", source, tmp_path)


def test_the_installed_wheel_runs_and_has_its_dashboard(programs: Path) -> None:
    metadata = package.tried(programs)

    assert (metadata["forebay"], metadata["has_dashboard"]) == (__version__, True)


def test_a_worker_of_the_installed_wheel_runs_a_job(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(
        "from forebay import Forebay\napp = Forebay('sqlite:///jobs.db')\n"
        "@app.task\ndef double(number: int) -> int:\n    return 2 * number\n"
        "if __name__ == '__main__':\n    with app.run_worker():\n"
        "        print(double.enqueue(21).result(timeout=100))\n"
    )

    done = subprocess.run(
        [programs / "python", "jobs.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr) == ("42\n", "")


@pytest.mark.shows("R-SDK-16")
def test_what_the_wheel_says_of_itself(made: Made) -> None:
    with zipfile.ZipFile(made.wheel) as wheel:
        text = wheel.read(f"forebay-{__version__}.dist-info/METADATA").decode()
        entries = wheel.read(f"forebay-{__version__}.dist-info/entry_points.txt").decode()
    metadata = Parser().parsestr(text)

    assert (metadata["Name"], metadata["Version"], metadata["Requires-Python"]) == (
        "forebay",
        __version__,
        ">=3.11",
    )
    assert "forebay = forebay.cli.main:main" in entries
    assert set(metadata.get_all("Provides-Extra") or []) >= WHOLE
    needed: dict[str, set[str]] = {}
    for line in metadata.get_all("Requires-Dist") or []:
        requirement, _, extra = line.partition("; extra == ")
        needed.setdefault(extra.strip("'\""), set()).add(requirement)
    assert {extra: needed[extra] - needed["all"] for extra in WHOLE} == {extra: set() for extra in WHOLE}
    assert not needed["all"] & needed["dev"]
