"""`make` lists few targets, and each benchmark and proof can be started by its name."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Commands that issues and papers name: those behind WHAT= stay targets by themselves.
NAMED = (
    *("audit", "bench-service", "compare", "crash-matrix", "fence", "fuzz-service ARGS=--each", "incidents"),
    *("requirements", "sbom", "simulate ARGS='--runs 3'", "soak MINUTES=10"),
)
# Stamps of all sets of packages, and that of all together.
SETS = {
    one.removeprefix("dev-")
    for one in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    if one.startswith("dev-")
} | {"all"}
FRESH = [f"--assume-old=.venv/.ready-{name}" for name in SETS]


def make(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *words], cwd=ROOT, capture_output=True, text=True, check=False)


def commands(*words: str) -> str:
    """The commands that make would run, with a .venv that has all sets of packages."""
    done = make("--dry-run", *FRESH, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def installed(*words: str, venv: Path) -> set[str]:
    """The sets of packages that make would install into an empty .venv."""
    done = make("--dry-run", f"VENV={venv}", *words)
    assert done.returncode == 0, done.stderr
    return {*re.findall(r"-m tools.environment (\S+)", done.stdout)}


def test_make_lists_at_most_twelve_targets_on_fifteen_lines() -> None:
    lines = make().stdout.splitlines()
    targets = [match[1] for line in lines if (match := re.match(r"[A-Z][a-z]+ +make ([a-z-]+) ", line))]

    assert len(lines) <= 15
    assert 8 <= len(targets) <= 12
    for target in targets:
        assert commands(target)


@pytest.mark.parametrize("kind", ["bench", "evidence"])
def test_every_name_in_the_list_of_a_kind_starts_a_program_that_exists(kind: str) -> None:
    names = re.findall(rf"^make {kind} WHAT=([a-z-]+) ", make(kind, "WHAT=list").stdout, re.MULTILINE)

    assert names
    for name in names:
        [program] = re.findall(r"bin/python (?:-m )?(\S+)", commands(kind, f"WHAT={name}"))
        path = ROOT / (program if program.endswith(".py") else program.replace(".", "/"))
        assert any(one.exists() for one in (path, path.with_suffix(".py"), path / "__main__.py")), name


def test_every_target_for_maintainers_has_commands() -> None:
    targets = re.findall(r"^make ([a-z-]+) ", make("tools").stdout, re.MULTILINE)

    assert {"site", "reference", "package", "audit", "sbom"} <= {*targets}
    for target in targets:
        assert commands(target)


@pytest.mark.parametrize("command", NAMED)
def test_a_name_behind_what_is_a_target_by_itself(command: str) -> None:
    target, *more = re.findall(r"[^' ]+(?:'[^']*')?", command)

    assert "bin/python" in commands(target, *(word.replace("'", "") for word in more))


def test_an_unknown_name_is_refused_with_the_way_out() -> None:
    done = make(*FRESH, "bench", "WHAT=redix")

    assert done.returncode == 2
    assert "make bench has no WHAT=redix; make bench WHAT=list names them all" in done.stderr


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("run", {"run"}),
        ("demo", {"run"}),
        ("format", {"format"}),
        ("test", {"run", "test"}),
        ("check", {"check"}),
        ("site", {"site"}),
        ("lock", {"release"}),
        ("audit", {"all"}),
        ("fuzz-service", {"fuzz", "test"}),
        ("covered", {"check", "test"}),
        ("compare", {"test"}),
    ],
)
def test_a_target_installs_the_packages_that_it_needs(target: str, wanted: set[str], tmp_path: Path) -> None:
    assert installed(target, venv=tmp_path / "none") == wanted


def test_every_set_that_a_target_installs_is_an_extra(tmp_path: Path) -> None:
    targets = re.findall(r"^([a-z-]+):.*##? *", (ROOT / "Makefile").read_text(), re.MULTILINE)
    sets = installed(*targets, venv=tmp_path / "none")

    assert {"run", "test", "check", "all"} <= sets <= SETS


def test_no_target_asks_for_packages_that_are_there() -> None:
    assert "tools.environment" not in commands("run", "test", "check", "docs", "setup")
