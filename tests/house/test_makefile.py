"""`make` lists few targets, and each benchmark and proof can be started by its name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Commands that issues and papers name: those behind WHAT= stay targets by themselves.
NAMED = (
    *("audit", "bench-service", "compare", "crash-matrix", "fence", "fuzz-service ARGS=--each", "incidents"),
    *("requirements", "sbom", "simulate ARGS='--runs 3'", "soak MINUTES=10"),
)


def make(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *words], cwd=ROOT, capture_output=True, text=True, check=False)


def commands(*words: str) -> str:
    """The commands that make would run, with a .venv that is fresh."""
    done = make("--dry-run", "--assume-old=.venv/.ready", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


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
    done = make("--assume-old=.venv/.ready", "bench", "WHAT=redix")

    assert done.returncode == 2
    assert "make bench has no WHAT=redix; make bench WHAT=list names them all" in done.stderr
