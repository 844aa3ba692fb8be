"""Numbered schema files: which there are, in what order, and who may work with what they leave."""

from __future__ import annotations

import pytest

from forebay.errors import SchemaNewer, SchemaOutdated
from forebay.stores.postgres.schema_setup_and_check import PACKAGE as POSTGRES
from forebay.stores.shared import migration_loader as module
from forebay.stores.shared.migration_loader import (
    NOTHING_APPLIED,
    AppliedSchema,
    Migration,
    load_migrations,
    pending_migrations,
)
from forebay.stores.sqlite.schema_setup_and_check import PACKAGE as SQLITE

SCRIPT = "-- min_program: 1\ncreate table t (x);\n"


def migration(number: int, oldest: int = 1) -> Migration:
    return Migration(number, f"step{number}", oldest, SCRIPT)


def load(monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> tuple[Migration, ...]:
    """Load what these files would be, without what was loaded before."""
    monkeypatch.setattr(module, "read_files", lambda package, folder: files)
    return load_migrations.__wrapped__("some.package")


def test_they_are_read_in_the_order_of_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "0002_second": "-- min_program: 2\nx",
        "0003_third": "-- min_program: 1\ny",
        "0001_first": SCRIPT,
    }

    found = load(monkeypatch, files)

    assert [(one.number, one.name, one.min_program) for one in found] == [
        (1, "first", 1),
        (2, "second", 2),
        (3, "third", 1),
    ]
    assert found[0].script == SCRIPT


@pytest.mark.parametrize(
    "names", [["0002_b"], ["0001_a", "0003_c"], ["0000_a", "0001_b"], ["0001_a", "0001_b"]]
)
def test_a_gap_or_a_number_twice_is_refused(monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    with pytest.raises(ValueError, match=r"some\.package are not numbered from 1 without a gap"):
        load(monkeypatch, dict.fromkeys(names, SCRIPT))


@pytest.mark.parametrize(
    "text", ["create table t (x);", "-- min_program: one\n", "\n-- min_program: 1\n", "-- min_program: 1", ""]
)
def test_a_wrong_header_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    with pytest.raises(ValueError, match=r"0001_a needs .* a first line '-- min_program: 1'"):
        load(monkeypatch, {"0001_a": text})


@pytest.mark.parametrize("name", ["1_a", "0001", "0001-a", "00001_a", "jobs", "0001_"])
def test_a_wrong_name_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(ValueError, match="needs a name like 0001_jobs"):
        load(monkeypatch, {name: SCRIPT})


@pytest.mark.parametrize("package", [SQLITE, POSTGRES])
def test_no_migration_asks_for_more_than_it_brings(package: str) -> None:
    known = load_migrations(package)

    assert known[0].name == "baseline"
    assert all(one.min_program <= one.number for one in known)


@pytest.mark.parametrize(("number", "left"), [(0, [1, 2, 3]), (1, [2, 3]), (3, []), (4, []), (9, [])])
def test_what_a_schema_still_needs(number: int, left: list[int]) -> None:
    known = [migration(1), migration(2), migration(3)]
    applied = AppliedSchema(number, 1, "step1") if number else NOTHING_APPLIED

    assert [one.number for one in pending_migrations(known, applied, "here")] == left


def test_a_newer_schema_that_bears_us_needs_nothing() -> None:
    assert pending_migrations([migration(1), migration(2)], AppliedSchema(7, 2, "step1"), "here") == []


@pytest.mark.parametrize(("number", "oldest"), [(3, 3), (7, 3), (7, 7)])
def test_a_schema_that_has_outgrown_us_is_refused(number: int, oldest: int) -> None:
    with pytest.raises(SchemaNewer, match="upgrade Forebay") as refused:
        pending_migrations([migration(1), migration(2)], AppliedSchema(number, oldest, "step1"), "here")

    assert str(refused.value).startswith("here: ")
    assert f"number {number}" in str(refused.value)
    assert f"schema {oldest} or newer" in str(refused.value)
    assert "up to 2" in str(refused.value)


@pytest.mark.parametrize(("number", "oldest", "first"), [(1, 1, "jobs"), (13, 13, "jobs"), (13, 13, None)])
def test_a_store_from_before_the_baseline_is_refused_with_the_way_out(
    number: int, oldest: int, first: str | None
) -> None:
    with pytest.raises(SchemaOutdated) as refused:
        pending_migrations([migration(1)], AppliedSchema(number, oldest, first), "jobs.db")

    assert str(refused.value) == (
        "jobs.db was made by an unreleased commit of Forebay, which this version does not migrate: start "
        "`forebay server` of this version on a new store, and move the jobs there from that commit with "
        "`forebay move --from OLD_STORE_URL --to http://127.0.0.1:8080`"
    )
