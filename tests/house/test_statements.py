"""Statement files and the code that names them: none is missing, none is left over."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.stores.shared.statement_loader import load_statements

STORES = Path(__file__).resolve().parents[2] / "src" / "forebay" / "stores"
ENGINES = sorted(folder.parent.name for folder in STORES.glob("*/sql"))
# The methods that take the name of a statement as their first argument.
CALLS = {"run", "run_rows", "one", "all", "_run", "_one", "_all", "_query", "_find_job", "_load_jobs"}


def statements(engine: str) -> dict[str, str]:
    return load_statements(f"forebay.stores.{engine}")


def named(engine: str) -> set[str]:
    """Every statement that the engine's code asks for, as patterns: part of a name may be filled in."""
    return _named_in(STORES / engine)


def _named_in(folder: Path) -> set[str]:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in folder.glob("*.py")]
    return {pattern for tree in trees for pattern in _requested_names(tree)}


def _requested_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=method), args=[first, *_]) if method in CALLS:
                yield from _patterns(first, tree)
            case ast.Subscript(
                value=ast.Name(id="statements") | ast.Attribute(attr="_statements"),
                slice=ast.Constant(value=str(name)),
            ):
                yield re.escape(name)


def _patterns(name: ast.expr, tree: ast.Module) -> Iterator[str]:
    match name:
        case ast.Constant(value=str(text)):
            yield re.escape(text)
        case ast.IfExp(body=one, orelse=other):
            yield from _patterns(one, tree)
            yield from _patterns(other, tree)
        case ast.JoinedStr(values=parts):
            yield "".join(
                re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"\w+" for part in parts
            )
        case ast.Name(id=variable):
            yield from _looped_over(variable, tree)


def _looped_over(variable: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.For(target=ast.Name(id=name), iter=ast.Tuple(elts=several)) if name == variable:
                yield from (pattern for one in several for pattern in _patterns(one, tree))


def test_there_is_an_engine_with_statements() -> None:
    assert "sqlite" in ENGINES


@pytest.mark.parametrize("engine", ENGINES)
def test_every_statement_is_asked_for(engine: str) -> None:
    patterns = named(engine) | _named_in(STORES / "shared")  # code that engines share asks, too

    assert [name for name in statements(engine) if not any(re.fullmatch(one, name) for one in patterns)] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_every_statement_that_is_asked_for_exists(engine: str) -> None:
    names = statements(engine)

    assert [one for one in named(engine) if not any(re.fullmatch(one, name) for name in names)] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_every_file_opens_with_its_name_and_what_it_is_for(engine: str) -> None:
    assert [name for name, text in statements(engine).items() if not text.startswith(f"-- {name}: ")] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_every_file_holds_one_statement(engine: str) -> None:
    texts = {name: re.sub(r"--.*", "", text).strip() for name, text in statements(engine).items()}

    assert [name for name, text in texts.items() if text.count(";") != 1 or not text.endswith(";")] == []


# ------------------------------------------------------------------ the test itself


@pytest.mark.parametrize(
    ("source", "patterns"),
    [
        ('tx.run("claim", {})', {"claim"}),
        ('self._one("job")', {"job"}),
        ('tx.all("a" if x else "b", {})', {"a", "b"}),
        ('tx.run(f"remove_{table}")', {r"remove_\w+"}),
        ('for name in ("a", "b"):\n    self._all(name)', {"a", "b"}),
        ('self._statements["a"]', {"a"}),
        ('statements["a"]', {"a"}),
        ('print("a"); tx.count("b"); {"run": "c"}', set()),
    ],
)
def test_names_are_found_in_code_like_this(source: str, patterns: set[str]) -> None:
    assert set(_requested_names(ast.parse(source))) == patterns
