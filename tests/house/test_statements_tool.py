"""The tool that shows and replaces statements. A mutant reaches one engine only and leaves nothing behind."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from forebay.stores.postgres.schema_setup_and_check import to_postgres
from forebay.stores.shared.statement_loader import compose_statements
from forebay.stores.sqlite.schema_setup_and_check import to_sqlite
from tools.statements import SOURCE, STORES, main, read_source, replace_source, statements


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in ("sqlite", "postgres", "shared"):
        shutil.copytree(SOURCE / STORES / folder / "sql", tmp_path / STORES / folder / "sql")
    return tmp_path


def composed(tree: Path, engine: str) -> dict[str, str]:
    dialect = {"sqlite": to_sqlite, "postgres": to_postgres}[engine]
    return compose_statements(tree / STORES / engine / "sql", tree / STORES / "shared" / "sql", dialect)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
@pytest.mark.parametrize("name", ["limits", "finish"])
def test_a_replaced_statement_is_sent_as_it_is_and_all_others_as_before(
    tree: Path, engine: str, name: str
) -> None:
    before = composed(tree, engine)

    with replace_source(STORES / engine / "sql" / f"{name}.sql", "select 1 where 'a%%' = 'b';", tree):
        during = composed(tree, engine)

    assert during == before | {name: "select 1 where 'a%%' = 'b';"}
    assert composed(tree, engine) == before == statements(engine)


def test_a_file_that_is_no_statement_is_replaced_whole(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")

    with replace_source(Path("a.py"), "pass\n", tmp_path):
        assert read_source(Path("a.py"), tmp_path) == "pass\n"
    assert read_source(Path("a.py"), tmp_path) == "x = 1\n"


def test_a_statement_is_printed_with_its_fragments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["postgres", "claim_limited"]) == 0

    text = capsys.readouterr().out
    assert "include" not in text
    assert "arrivals as materialized (" in text


def test_all_names_are_printed_without_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sqlite"]) == 0

    assert {"claim", "limits", "finish"} <= set(capsys.readouterr().out.split())
    with pytest.raises(SystemExit):
        main(["sqlite", "gone"])
    assert "sqlite has no statement gone" in capsys.readouterr().err
