"""The crash matrix is whole, finds nothing on any engine, and finds what it is there for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from evidence.matrix import HALFWAY, NEITHER, NOTHING, ROWS, WHOLE, Played, Reference, as_table
from evidence.matrix_rows import ALL, WITHOUT_ROW, check_rows, writing

ROOT: Final = Path(__file__).resolve().parents[2]


def test_every_method_of_the_store_contract_has_a_row_and_nothing_else_has() -> None:
    check_rows(ROWS)

    assert {row.method for row in ROWS} | set(WITHOUT_ROW) == writing()
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_a_method_without_a_row_is_an_error() -> None:
    with pytest.raises(LookupError, match="no row for fire_schedules, renew"):
        check_rows(row for row in ROWS if row.method not in ("fire_schedules", "renew"))


@pytest.mark.shows("R-SWEEP-19", "R-SWEEP-20", "R-SWEEP-28", "R-EDGE-08", "R-EDGE-38", "R-ENQ-15", "R-BUG-17")
@pytest.mark.parametrize("engine", ALL)
def test_a_kill_in_each_operation_leaves_all_of_it_or_nothing(engine: str, tmp_path: Path) -> None:
    """Once in each, in a process without threads; `make evidence WHAT=crash-matrix` plays every point."""
    words = ["-m", "evidence.matrix", "--quick", "--engine", engine, "--json", str(tmp_path / "found")]
    subprocess.run([sys.executable, *words], cwd=ROOT, check=False, stdout=subprocess.DEVNULL)

    found = json.loads((tmp_path / "found").read_text())
    assert [line for each in found for line in each["problems"]] == []
    names = [row.name for row in ROWS if engine in row.engines]
    assert {each["operation"]: sum(each["ends"].values()) for each in found} == dict.fromkeys(
        [*names, "migrate"], 1
    )


# One that does in two steps what should be one.
TWO_STEPS: Final = """
from evidence.matrix import play
from evidence.matrix_rows import Row, job

def scene(stage):
    def act(process):
        process.store.insert([job(unique_key="a")])
        process.store.insert([job(unique_key="b")])
    return act

played = play(Row(name="two steps", method="insert", scene=scene), "sqlite", [2, 15, 1_000])
print(*played.ends)
print(played.problems[0])
"""


def test_an_operation_that_can_be_left_half_done_is_found() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TWO_STEPS], cwd=ROOT, check=True, capture_output=True, text=True
    )

    seen, problem = done.stdout.splitlines()
    assert seen == "nothing neither whole"
    assert problem.startswith("killed at point ")


def test_what_a_store_shows_says_how_far_an_operation_has_come() -> None:
    before, half, once, twice = ({"jobs": number} for number in range(4))
    reference = Reference(before=before, once=once, twice=twice, halfway=half)

    assert reference.end(before) == (NOTHING, once, [])
    assert reference.end(half) == (HALFWAY, once, [])
    assert reference.end(once) == (WHOLE, twice, [])
    assert reference.end({"jobs": 7}) == (NEITHER, twice, ["jobs is 7 and not 0"])


def test_the_table_has_a_row_for_each_operation_and_a_column_for_each_engine() -> None:
    results = [
        Played(operation="fire", engine="redis", ends=Counter({NOTHING: 1, WHOLE: 2})),
        Played(operation="fire", engine="memory", ends=Counter({NOTHING: 1, HALFWAY: 3, WHOLE: 1})),
        Played(operation="prune", engine="redis", ends=Counter({NEITHER: 1}), problems=["what"]),
    ]

    assert as_table(results).splitlines() == [
        "| operation | memory | redis |",
        "|---|---|---|",
        "| fire | 5: 1 / 3 / 1 | 3: 1 / 2 |",
        "| prune |  | 1: PROBLEM |",
        "",
        "3 rows, 9 kills, 1 rows with a problem",
    ]
