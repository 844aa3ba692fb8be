"""`tools/covered.py`: the coverage of each part by its tests."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.covered import PARTS, SOURCE, Part


def report(part: Part, missed: str = "", branches: int = 100) -> dict[str, Any]:
    """As `coverage json` would write it: all was reached, but of one function."""
    files: dict[str, Any] = {}
    for place in part.whole:
        name, function = place.split("::")
        summary = {"covered_lines": 9 if place == missed else 10, "num_statements": 10}
        files.setdefault(SOURCE + name, {"functions": {}})["functions"][function] = {"summary": summary}
    files.setdefault(f"{SOURCE}{part.places[0]}any.py", {"functions": {}})
    for about in files.values():
        about["summary"] = {
            "covered_lines": 100, "num_statements": 100, "covered_branches": branches, "num_branches": 100
        }  # fmt: skip
    return {"files": files}


def covered(part: Part, found: dict[str, Any], folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "coverage.json"
    file.write_text(json.dumps(found), encoding="utf-8")
    return subprocess.run(
        [sys.executable, "tools/covered.py", "--part", part.name, "--report", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.shows("R-NFR-30", "R-NFR-31", "R-NFR-34", "R-TEST-67")
@pytest.mark.parametrize("part", PARTS, ids=[part.name for part in PARTS])
def test_a_part_below_its_goals_is_named(part: Part, tmp_path: Path) -> None:
    goals = {"queue": (95, 90), "worker": (90, 85), "dashboard": (85, 80)}
    assert (part.lines, part.branches) == goals[part.name]

    assert covered(part, report(part), tmp_path).returncode == 0
    for place in part.whole:
        done = covered(part, report(part, missed=place), tmp_path)
        assert done.returncode == 1
        assert [line for line in done.stdout.splitlines() if line.endswith("MISSED")] == [
            line for line in done.stdout.splitlines() if line.split()[0] == place
        ]
    done = covered(part, report(part, branches=int(part.branches) - 1), tmp_path)
    assert done.returncode == 1
    assert f"{part.name}: branches" in done.stdout


@pytest.mark.parametrize("part", PARTS, ids=[part.name for part in PARTS])
def test_what_must_be_covered_whole_is_there(part: Part) -> None:
    for place in part.whole:
        name, function = place.split("::")
        found: ast.AST = ast.parse(Path(SOURCE + name).read_text(encoding="utf-8"))
        for word in function.split("."):
            found = next(one for one in ast.iter_child_nodes(found) if getattr(one, "name", None) == word)


@pytest.mark.shows("R-TEST-68")
def test_quick_steps_run_first_and_measurements_are_targets_of_their_own() -> None:
    steps = [
        line for line in Path(".ci/run").read_text(encoding="utf-8").splitlines() if line.startswith("make ")
    ]
    assert [step.split(" ARGS=")[0] for step in steps[:3]] == [
        "make check",
        "make test",
        "make test-extended",
    ]
    measurements = ("bench", "compare", "evidence", "soak")
    assert not [step for step in steps if any(word in step for word in measurements)]
