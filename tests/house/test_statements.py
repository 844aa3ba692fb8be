"""Statements and the code that names them: none is missing, none is left over, and none stands twice."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.stores.shared.statement_loader import parse_sections
from forebay.stores.sqlite.schema_setup_and_check import to_sqlite
from tools.statements import DIALECTS, statements

STORES = Path(__file__).resolve().parents[2] / "src" / "forebay" / "stores"
ENGINES = sorted(DIALECTS)
FILES = sorted(STORES.glob("*/sql/*.sql"))
RUN = 8  # so many equal lines are a fragment
# Statements of SQLite and PostgreSQL that have a run in common, and why it is not shared.
IN_BOTH = {
    ("check_keys", "check_keys"): "a key until the start is read from JSON by other functions",
    ("schedule_save", "schedule_save"): "SQLite compares the revision before, under the write lock",
}
# The methods that take the name of a statement as their first argument.
CALLS = {"run", "run_rows", "one", "all", "_run", "_one", "_all", "_query", "_find_job", "_load_jobs"}


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


def test_every_folder_of_statements_is_read() -> None:
    assert {file.parts[-3] for file in FILES} == {*ENGINES, "shared"}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_statement_is_asked_for(engine: str) -> None:
    patterns = named(engine) | _named_in(STORES / "shared")  # code that engines share asks, too

    assert [name for name in statements(engine) if not any(re.fullmatch(one, name) for one in patterns)] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_every_statement_that_is_asked_for_exists(engine: str) -> None:
    names = statements(engine)

    assert [one for one in named(engine) if not any(re.fullmatch(one, name) for name in names)] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_every_section_holds_one_statement(engine: str) -> None:
    texts = {name: re.sub(r"--.*", "", text).strip() for name, text in statements(engine).items()}

    assert [name for name, text in texts.items() if text.count(";") != 1 or not text.endswith(";")] == []


def test_no_comment_is_nearly_a_head_or_an_include() -> None:
    """The loader would take it for a comment, and leave out what it stands for."""
    meant = re.compile(r"\s*--\s*(?:name|fragment|include)\b")
    exact = re.compile(r"-- (?:name|fragment): \w+: \S.*| *-- include: \w+")

    lines = [line for file in FILES for line in file.read_text(encoding="utf-8").splitlines()]

    assert [line for line in lines if meant.match(line) and not exact.fullmatch(line)] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_every_fragment_is_included_twice(engine: str) -> None:
    texts = [file.read_text(encoding="utf-8") for file in FILES if file.parts[-3] in (engine, "shared")]
    included = Counter(re.findall(r"^ *-- include: (\w+)$", "\n".join(texts), re.MULTILINE))
    fragments = re.findall(r"^-- fragment: (\w+): ", "\n".join(texts), re.MULTILINE)

    assert [name for name in fragments if included[name] < 2] == []


# ------------------------------------------------------------------ lines that stand twice


@pytest.mark.parametrize("engine", ENGINES)
def test_no_run_of_lines_stands_twice_in_an_engine(engine: str) -> None:
    """Lines of two statements are a fragment, so that no change is made in one of them alone."""
    sections = [*written(engine), *written("shared")]

    assert list(repeated_runs(sections, sections)) == []


def test_lines_that_two_engines_share_have_a_reason_to_stand_twice() -> None:
    first, second = ([*map(in_one_dialect, written(engine))] for engine in ENGINES)

    assert [pair for pair in repeated_runs(first, second) if pair not in IN_BOTH] == []
    assert set(IN_BOTH) - set(repeated_runs(first, second)) == set()
    assert len(IN_BOTH) <= 10


def written(folder: str) -> list[tuple[str, list[str]]]:
    """The lines of each statement and fragment, without comments and blank lines."""
    sections = [
        section
        for file in sorted((STORES / folder / "sql").glob("*.sql"))
        for section in parse_sections(file)
    ]
    return [(name, code_lines(section.text)) for name, section in sections]


def code_lines(text: str) -> list[str]:
    lines = map(str.strip, text.splitlines())
    return [line for line in lines if line and not line.startswith("--")]


def in_one_dialect(section: tuple[str, list[str]]) -> tuple[str, list[str]]:
    name, lines = section
    return name, [to_sqlite(re.sub(r"%\((\w+)\)[sb]", r":\1", line).replace("%%", "%")) for line in lines]


def repeated_runs(
    first: list[tuple[str, list[str]]], second: list[tuple[str, list[str]]]
) -> Iterator[tuple[str, str]]:
    """The names of sections that have RUN lines or more in common, once for each such run."""
    places: defaultdict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for number, (_, lines) in enumerate(second):
        for start in range(len(lines) - RUN + 1):
            places[tuple(lines[start : start + RUN])].append((number, start))
    for number, (name, lines) in enumerate(first):
        for start in range(len(lines) - RUN + 1):
            for other, there in places[tuple(lines[start : start + RUN])]:
                is_itself = first is second and (other, there) <= (number, start)
                goes_on = start and there and lines[start - 1] == second[other][1][there - 1]
                if not (is_itself or goes_on):
                    yield name, second[other][0]


def test_a_run_is_found_wherever_it_begins_and_once() -> None:
    run = [f"line {number}" for number in range(RUN + 2)]
    sections = [("a", ["x", *run]), ("b", [*run, "y"]), ("c", run[: RUN - 1])]

    assert list(repeated_runs(sections, sections)) == [("a", "b")]
    assert list(repeated_runs([("a", [*run, *run])], [("b", run)])) == [("a", "b"), ("a", "b")]


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
