"""The tool that removes guards: it finds those it should, and its list of equivalents is not out of date."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tools.mutate import (
    ENGINES,
    EQUIVALENTS,
    LEFT_OUT,
    ROOT,
    Cut,
    Mutant,
    Result,
    all_mutants,
    as_json,
    as_table,
    assignments,
    conditions,
    equivalent,
    main,
    steps,
    suite_for,
    summary,
)
from tools.statements import SOURCE, STORES, read_source, statements

UPDATE = """\
-- sample: a comment with where x = 1 and set y = 2 in it.
update jobs
set state = 'running',
    -- Here too, and with a comma.
    ends_at = :now + coalesce(:lease_ms, (select ms from queues where name = jobs.queue and ms > 0), 1)
where seq in (select seq from heads where lead > 0 order by lead limit :room)
  and (state = 'pending' or state = 'retrying')
  and worker = :worker
returning id;
"""
UPSERT = """\
-- sample: a key.
insert into keys (name, until)
values (:name, :until)
on conflict (name) do update
set until = excluded.until
where keys.until <= :now;
"""
MODULE = '''\
def settle(tx, jobs):
    """Settle."""
    queue = tx.one("held")
    for job in jobs:
        tx.free_key(
            job,
        )
    tx.counts[queue] -= 1
    tx.is_done = True
    tx.needs_wakeup = True
    return queue


class Book:
    def __init__(self):
        self.open()

    def close(self):
        self.pages.clear()
'''


def cut_out(text: str, cuts: list[Cut]) -> list[str]:
    return [" ".join(text[cut.start : cut.end].split()) for cut in cuts]


def test_every_condition_of_a_statement_is_found() -> None:
    assert cut_out(UPDATE, list(conditions(UPDATE))) == [
        "name = jobs.queue",
        "ms > 0",
        "seq in (select seq from heads where lead > 0 order by lead limit :room)",
        "(state = 'pending' or state = 'retrying')",
        "worker = :worker",
        "lead > 0",
    ]


def test_a_mutant_of_postgresql_keeps_the_types_of_parameters_and_names_the_table_of_a_column() -> None:
    text = "update forebay.jobs j set (a, b) = (1, 2) from other where j.id = %(id)s and x for update;"

    assert cut_out(text, [*assignments(text), *conditions(text)]) == ["(a, b) = (1, 2)", "j.id = %(id)s", "x"]
    assert [cut.instead for cut in (*assignments(text), *conditions(text))] == [
        "(a, b) = (j.a, j.b)",
        "(true or (j.id = %(id)s))",
        "true",
    ]


def test_the_condition_of_a_conflict_is_found() -> None:
    assert cut_out(UPSERT, list(conditions(UPSERT))) == ["keys.until <= :now"]


def test_every_assignment_of_a_statement_is_found_and_kept_as_it_was() -> None:
    found = list(assignments(UPDATE))

    assert [cut.instead for cut in found] == ["state = state", "ends_at = ends_at"]
    assert cut_out(UPDATE, found)[0] == "state = 'running'"
    assert cut_out(UPSERT, list(assignments(UPSERT))) == ["until = excluded.until"]


def test_calls_made_for_their_effect_and_stored_values_are_steps() -> None:
    found = [(function, cut_out(MODULE, [cut])[0]) for function, cut in steps(MODULE)]

    assert sorted(found) == [
        ("close", "self.pages.clear()"),
        ("settle", "tx.counts[queue] -= 1"),
        ("settle", "tx.free_key( job, )"),
        ("settle", "tx.is_done = True"),
    ]


def test_a_mutant_lacks_only_what_was_removed() -> None:
    cut = next(conditions(UPSERT))
    mutant = Mutant(
        where="sample.sql", removed="keys.until <= :now", nth=1, path=Path("sample.sql"), **cut._asdict()
    )

    assert mutant.apply(UPSERT) == UPSERT.replace("keys.until <= :now", "true")


def test_every_mutant_can_be_run() -> None:
    """One that is no longer valid SQL or Python would be caught by everything and show nothing."""
    memory = sqlite3.connect(":memory:")
    for migration in sorted((SOURCE / STORES / "sqlite" / "migrations").glob("*.sql")):
        memory.executescript(migration.read_text(encoding="utf-8"))
    for mutant in all_mutants():
        text = mutant.apply(read_source(mutant.path))
        if mutant.path.suffix == ".py":
            compile(text, mutant.where, "exec")
        elif (
            mutant.engine == "sqlite"
        ):  # those of PostgreSQL need a server: tests/stores/test_postgres_mutants.py
            assert sqlite3.complete_statement(text), mutant.name
            # The tables are there, so this also says whether every name in it still means something.
            values = [0] * text.count("?") if "(?," in text else _Anything()
            memory.execute(f"explain {text}", values)
    memory.close()


class _Anything(dict[str, object]):
    """A value for every parameter."""

    def __missing__(self, name: str) -> int:
        return 0


def test_mutants_have_names_of_their_own() -> None:
    names = [mutant.name for mutant in all_mutants()]

    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "name",
    [
        "sqlite/finish.sql: attempt = :attempt",
        "sqlite/claim.sql: state = 'pending'",
        "sqlite/renew.sql: worker = :worker",
        "sqlite/key_free.sql: job_id = :job_id",
        "sqlite/return_to_queue.sql: lease_expires_at = null",
        "sqlite/key_take.sql: forebay_job_keys.held_until <= :now",
        "sqlite/settle._finish: tx.release_key(queue, unique_key, settlement.job_id)",
        "postgres/finish.sql: attempt = %(attempt)s",
        "postgres/settle_and_claim.sql: worker = %(worker)s::text",
        "postgres/claim_limited.sql: ctid = any(array(select ctid from accepted))",
    ],
)
def test_the_guards_that_matter_most_are_among_the_mutants(name: str) -> None:
    assert name in {mutant.name for mutant in all_mutants()}


def test_what_is_left_out_exists() -> None:
    assert LEFT_OUT - {name for engine in ENGINES for name in statements(engine)} == set()


def test_every_entry_of_the_list_of_equivalents_matches_a_mutant() -> None:
    mutants = all_mutants()
    for entry in EQUIVALENTS:
        matched = [mutant for mutant in mutants if equivalent(mutant) is entry]
        assert {mutant.where for mutant in matched} == {f"{entry.engine}/{where}" for where in entry.where}, (
            entry.why
        )
        assert {mutant.label for mutant in matched} == set(entry.removed), entry.why


def test_the_whole_suite_is_run_for_every_mutant() -> None:
    whole = sorted(suite_for("sqlite/"))

    assert all(sorted(suite_for(each.where)) == whole for each in all_mutants() if each.engine == "sqlite")
    assert suite_for("sqlite/renew.sql").index("tests/stores/contract/test_lease.py") < whole.index(
        "tests/stores/contract/test_lease.py"
    )


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_every_file_of_the_suite_exists(engine: str) -> None:
    assert [file for file in suite_for(f"{engine}/") if not (ROOT / file).is_file()] == []


def sample_results() -> list[Result]:
    cut = {"path": Path("a.sql"), "start": 0, "end": 1, "instead": "true"}
    first = Mutant(where="a.sql", removed="x = 1", nth=1, **cut)  # type: ignore[arg-type]
    second = Mutant(where="a.sql", removed="x = 1", nth=2, **cut)  # type: ignore[arg-type]
    return [
        Result(mutant=first, outcome="caught", by="test_a.py::test_x"),
        Result(mutant=second, outcome="survived", by=""),
    ]


def test_the_table_names_what_caught_a_mutant_and_ends_with_a_summary() -> None:
    lines = as_table(sample_results()).splitlines()

    assert lines[2:4] == ["| a.sql | `x = 1` | test_a.py::test_x |", "| a.sql | `x = 1 (2)` | SURVIVED |"]
    assert lines[-1] == summary(sample_results()) == "2 mutants, 1 caught, 1 survived, 0 equivalent"


def test_results_can_be_read_by_programs() -> None:
    results = json.loads(as_json(sample_results()))

    assert results["mutants"][0] == {
        "where": "a.sql",
        "removed": "x = 1",
        "outcome": "caught",
        "by": "test_a.py::test_x",
    }


def test_a_list_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--only", "key_free"]) == 0

    assert capsys.readouterr().out.splitlines()[-1] == "sqlite/key_free.sql: job_id = :job_id"
