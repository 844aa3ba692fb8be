"""Commands that look change nothing, whatever they are pointed at."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from forebay.stores.contract.store import Store
from forebay.stores.shared.migration_loader import Migration, load_migrations
from forebay.stores.sqlite import schema_setup_and_check
from tests.cli.command_runner import answer, call, program, refusal

READ_COMMANDS = [
    ("stats",),
    ("stuck",),
    ("sweep", "--now"),
    ("inspect", "mail"),
    ("jobs", "list"),
    ("jobs", "cancel", "x", "--yes"),
    ("queues", "list"),
    ("dead", "list"),
]


@pytest.fixture
def foreign(folder: Path) -> Path:
    """The database of another program, named by `forebay.toml`."""
    path = folder / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table orders (id integer primary key)")
        connection.commit()
    (folder / "forebay.toml").write_text('url = "sqlite:///shop.db"\n')
    return path


def tables(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [name for (name,) in connection.execute("select name from sqlite_master order by name")]


@pytest.mark.parametrize("words", READ_COMMANDS, ids=" ".join)
def test_a_database_without_our_tables_is_left_as_it_is(words: tuple[str, ...], foreign: Path) -> None:
    before = foreign.read_bytes()

    error = refusal(*words)

    assert (error["kind"], error["status"]) == ("StoreUnusable", 3)
    assert error["message"].endswith("shop.db has no Forebay tables; `forebay migrate` makes them")
    assert foreign.read_bytes() == before
    assert sorted(path.name for path in foreign.parent.iterdir()) == ["forebay.toml", "shop.db"]


def test_the_doctor_makes_no_tables_either(foreign: Path) -> None:
    result = call("doctor")

    assert result.exit_code == 3
    assert "PROBLEM  store: " in result.stdout
    assert "has no Forebay tables; `forebay migrate` makes them" in result.stdout
    assert tables(foreign) == ["orders"]


def test_tables_are_made_next_to_those_of_others_when_that_is_asked_for(foreign: Path) -> None:
    answer("migrate")

    assert answer("stats")["total"]["total"] == 0
    assert "orders" in tables(foreign)


def test_the_store_of_an_app_is_not_created_by_looking(app_folder: Path) -> None:
    result = program(app_folder, "stats")

    assert result.returncode == 3
    assert "jobs.db; `forebay migrate` creates it" in result.stderr
    assert not (app_folder / "jobs.db").exists()


@pytest.fixture
def newer_program(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that knows one step more than the store has."""
    known = load_migrations(schema_setup_and_check.PACKAGE)
    step = Migration(len(known) + 1, "more", 1, "create table forebay_more (id integer) strict;")
    monkeypatch.setattr(schema_setup_and_check, "load_migrations", lambda package: (*known, step))


@pytest.mark.usefixtures("newer_program")
def test_an_outdated_schema_is_reported_and_not_brought_up_to_date(folder: Path) -> None:
    error = refusal("stats")
    examined = call("doctor")

    assert (error["kind"], error["status"]) == ("SchemaOutdated", 3)
    assert "which is too old; `forebay migrate` brings it up to date" in error["message"]
    assert examined.exit_code == 3
    assert "which is too old" in examined.stdout
    assert "forebay_more" not in tables(folder / "jobs.db")

    answer("migrate")
    assert "forebay_more" in tables(folder / "jobs.db")
    assert answer("stats")["total"]["total"] == 0
