"""Statements from files by subject, with fragments and in the dialect of an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.stores.postgres.schema_setup_and_check import to_postgres
from forebay.stores.shared.statement_loader import compose_statements
from forebay.stores.sqlite.schema_setup_and_check import to_sqlite


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    return folder


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


def test_a_file_holds_several_statements_and_their_comments_are_not_sent(own: Path, shared: Path) -> None:
    (own / "jobs.sql").write_text(
        "-- name: a: one.\n-- Cost: none.\nselect 1;\n\n-- name: b: two.\nselect\n  -- x\n  2;\n"
    )

    assert compose_statements(own, shared, str) == {"a": "select 1;", "b": "select\n  2;"}


def test_a_fragment_stands_in_the_place_of_its_include_and_is_no_statement(own: Path, shared: Path) -> None:
    (own / "jobs.sql").write_text("-- name: a: one.\nselect *\n-- include: live\norder by id;\n")
    (own / "live.sql").write_text(
        "-- fragment: live: live jobs.\nfrom jobs\n  -- include: due\n\n-- fragment: due: due.\nwhere due\n"
    )

    assert compose_statements(own, shared, str) == {"a": "select *\nfrom jobs\nwhere due\norder by id;"}


def test_a_shared_statement_is_rewritten_and_one_of_the_engine_is_not(own: Path, shared: Path) -> None:
    text = "select 'a:%', x::bigint from forebay.jobs where id = :id and day = any(:days::text[]);"
    (shared / "jobs.sql").write_text(f"-- name: a: one.\n{text}\n")
    (own / "jobs.sql").write_text(f"-- name: b: two.\n{text}\n")

    assert compose_statements(own, shared, to_sqlite) == {
        "a": "select 'a:%', x from forebay_jobs where id = :id and day = any(:days);",
        "b": text,
    }
    assert compose_statements(own, shared, to_postgres) == {
        "a": "select 'a:%%', x::bigint from forebay.jobs where id = %(id)s and day = any(%(days)s::text[]);",
        "b": text,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select 1;\n", "jobs.sql does not begin with a head"),
        ("-- name: a:\nselect 1;\n", "jobs.sql does not begin with a head"),
        ("-- name: a: one.\nselect 1;\n-- fragment: a: two.\nx\n", "two statements or fragments are named a"),
        ("-- name: a: one.\n-- include: gone\n", "a includes an unknown fragment, 'gone'"),
        (
            "-- name: a: one.\n-- include: b\n-- name: b: two.\nselect 1;\n",
            "a includes an unknown fragment, 'b'",
        ),
        (
            "-- name: a: one.\n-- include: f\n-- fragment: f: x.\n-- include: f\n",
            "f includes itself through 'f'",
        ),
    ],
)
def test_a_mistake_in_a_file_is_named(own: Path, shared: Path, text: str, message: str) -> None:
    (own / "jobs.sql").write_text(text)

    with pytest.raises(ValueError, match=message):
        compose_statements(own, shared, str)
