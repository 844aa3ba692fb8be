"""The tool that takes the attempt out of the fence knows every look at it, and each mutant can be run."""

from __future__ import annotations

import pytest

from tools.fence import ENGINES, GUARDS, NO_FENCE, as_row, forgotten, main, mutants
from tools.statements import SOURCE, read_source


def test_no_line_that_compares_attempts_is_forgotten() -> None:
    assert forgotten() == []


def test_what_is_listed_as_no_part_of_the_fence_is_there() -> None:
    files = (SOURCE / "forebay" / "stores").rglob("*.*")
    lines = {
        line.strip()
        for file in files
        if file.suffix in (".sql", ".lua", ".py")
        for line in file.read_text(encoding="utf-8").splitlines()
    }

    assert set(NO_FENCE) - lines == set()


def test_every_guard_of_the_list_is_found_in_the_code() -> None:
    looks = {mutant.removed for mutant in mutants()}

    assert [guard for guard in GUARDS if guard.look.strip() not in looks] == []


def test_mutants_have_names_of_their_own_and_every_engine_has_some() -> None:
    names = [mutant.name for mutant in mutants()]

    assert len(set(names)) == len(names)
    assert {name.partition(":")[0] for name in names} == set(ENGINES)


def test_a_mutant_lacks_a_look_and_is_still_a_program() -> None:
    for mutant in mutants():
        text = read_source(mutant.path)
        assert mutant.apply(text) != text
        if mutant.path.suffix == ".py":
            compile(mutant.apply(text), mutant.where, "exec")


def test_the_table_says_what_was_not_caught() -> None:
    mutant = mutants()[0]

    assert as_row(mutant, "test_fence.py::test_x").endswith("| test_fence.py::test_x |")
    assert as_row(mutant, None).endswith("| NOT CAUGHT |")


def test_a_list_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--engine", "redis"]) == 0
    assert "redis: redis/settle_and_claim.py: settlement.attempt == 1" in capsys.readouterr().out.splitlines()
