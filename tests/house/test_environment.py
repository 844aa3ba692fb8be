"""Development packages come in sets: each package in one of them, in one version."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools import environment

ROOT = Path(__file__).parents[2]
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]
SETS = {name.removeprefix("dev-") for name in EXTRAS if name.startswith("dev-")}


def packages(name: str) -> set[str]:
    """What is installed with a set, by name."""
    found = {one for part in environment.contained(name) for one in environment.requirements(part)}
    return {re.split(r"[\[=]", one, maxsplit=1)[0] for one in found} - {"forebay"}


def test_every_package_is_pinned_in_one_set() -> None:
    pins = [
        (one.partition("==")[0], one.partition(";")[2])
        for name in SETS
        for one in environment.requirements(name)
        if not one.startswith("forebay[")
    ]

    assert len(pins) == len({*pins})
    assert all(
        "==" in one
        for name in SETS
        for one in environment.requirements(name)
        if not one.startswith("forebay[")
    )


def test_all_sets_together_are_the_extra_dev() -> None:
    assert environment.contained("all") == SETS | {"all"}
    assert environment.requirements("all") == EXTRAS["dev"]


def test_a_newcomer_gets_what_runs_the_sample_and_no_more() -> None:
    assert packages("run") == {"litestar", "rich", "uvicorn"}


def test_tests_run_without_the_packages_for_checks_the_site_browsers_and_releases() -> None:
    others = {*packages("site"), *packages("browser"), *packages("release"), *packages("page"), "pre-commit"}

    assert not packages("test") & others
    assert packages("run") < packages("test") < packages("check")


def test_an_unknown_set_is_refused_with_the_names_of_all() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.environment", "tests"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "pyproject.toml has no extra dev-tests; there are browser, check, " in done.stderr


def test_what_cannot_be_installed_is_said_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "venv"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").symlink_to(tmp_path / "gone")  # a Python that was there, and is made again
    monkeypatch.setattr(environment.install, "__defaults__", (home,))
    monkeypatch.setattr(sys, "argv", ["environment", "run"])
    for name, value in {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}.items():
        monkeypatch.setenv(name, value)

    assert environment.main() == os.EX_UNAVAILABLE

    output = capfd.readouterr()
    assert "venv: install the packages of dev-run: failed after" in output.out
    assert "connect to the network or set PIP_INDEX_URL" in output.err
    assert subprocess.run([home / "bin" / "python", "-c", ""], check=False).returncode == 0
    assert not (home / ".ready-run").exists()
