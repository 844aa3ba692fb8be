"""State of each line of docs/internals/requirements.md: shown, partly shown, not built, or decided against.

    python tools/requirements.py               the four counts, and a table by section
    python tools/requirements.py --section 4   the lines of one section, with the tests that show them
    python tools/requirements.py --json        everything, for programs
    python tools/requirements.py --check       fail on ids and notes that do not make sense

A test says what it shows with `pytest.mark.shows("R-JOB-01", ...)`, as a decorator of a function or a
class, or as `pytestmark`. The tests are read, not run. A note behind a line says what the tests do not show.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

SECTION = re.compile(r"^## (\d+)\. (.+)$")
LINE = re.compile(
    r"^- \*\*(?P<id>R-[A-Z]+-\d+)\*\* (?P<text>.+?)"
    r" \[(?P<sources>\d{3}(?: \d{3})*)\]"
    r"(?: \{(?P<note>[^{}]*)\})?$"
)
LINE_START = "- **R-"
NOTE = re.compile(r"^(?P<state>partly|missing|against): (?P<reason>.+)$")
# Each state with its words in the printed table. A line without a note counts as shown.
STATES = {"shown": "shown", "partly": "partly shown", "missing": "not built", "against": "decided against"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something in the catalogue or in a test that has to be mended."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{_relative(self.path)}:{self.line}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One line of the catalogue. `reason` says what is missing, or why it was decided against."""

    id: str
    text: str
    sources: tuple[str, ...]
    section: int
    line: int
    state: str
    reason: str


@dataclass(slots=True, kw_only=True)
class Catalogue:
    """The catalogue as read, with what was wrong in it."""

    path: Path
    sections: dict[int, str] = field(default_factory=dict)
    requirements: dict[str, Requirement] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def complain(self, line: int, message: str) -> None:
        self.problems.append(Problem(path=self.path, line=line, message=message))


@dataclass(frozen=True, slots=True, kw_only=True)
class Showing:
    """A test that says it shows a requirement."""

    id: str
    path: Path
    line: int
    test: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A requirement with the tests that are marked with it."""

    requirement: Requirement
    tests: tuple[str, ...]


# ------------------------------------------------------------------ the catalogue


def read_catalogue(path: Path) -> Catalogue:
    """Read the catalogue line by line. A line that cannot be understood becomes a problem."""
    catalogue = Catalogue(path=path)
    section = 0
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if match := SECTION.match(text):
            section = int(match[1])
            catalogue.sections[section] = match[2]
        elif text.startswith(LINE_START):
            _read_line(catalogue, section, number, text)
    return catalogue


def _read_line(catalogue: Catalogue, section: int, number: int, text: str) -> None:
    match = LINE.match(text)
    if match is None:
        catalogue.complain(
            number, "expected `- **R-XXX-nn** text [sources]`, then nothing or `{state: reason}`"
        )
        return
    if match["id"] in catalogue.requirements:
        catalogue.complain(number, f"{match['id']} stands here for the second time")
    state, reason = "shown", ""
    if match["note"] is not None:
        if note := NOTE.match(match["note"]):
            state, reason = note["state"], note["reason"]
        else:
            known = "{partly: what is missing}, {missing: what} or {against: reason}"
            catalogue.complain(number, f"{{{match['note']}}} is none of {known}")
    catalogue.requirements[match["id"]] = Requirement(
        id=match["id"],
        text=match["text"],
        sources=tuple(match["sources"].split()),
        section=section,
        line=number,
        state=state,
        reason=reason,
    )


# ------------------------------------------------------------------ the tests


def showings(folder: Path) -> tuple[list[Showing], list[Problem]]:
    """Every `shows` marker below the folder, and those that cannot be read."""
    found: list[Showing] = []
    problems: list[Problem] = []
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        for name, markers in _marked(tree, _relative(path)):
            for marker in markers:
                _read_marker(marker, path, name, found, problems)
    return found, problems


def _marked(scope: ast.Module | ast.ClassDef, name: str) -> Iterator[tuple[str, Iterable[ast.Call]]]:
    """Names of tests, classes and modules with the markers that stand on them."""
    for node in scope.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield f"{name}::{node.name}", _markers(node.decorator_list)
            case ast.ClassDef():
                yield f"{name}::{node.name}", _markers(node.decorator_list)
                yield from _marked(node, f"{name}::{node.name}")
            case ast.Assign(targets=[ast.Name("pytestmark")], value=value):
                yield name, _markers([value])
            case ast.AnnAssign(target=ast.Name("pytestmark"), value=ast.expr() as value):
                yield name, _markers([value])
            case _:
                pass


def _markers(expressions: Iterable[ast.expr]) -> Iterator[ast.Call]:
    for expression in expressions:
        for node in ast.walk(expression):
            match node:
                case ast.Call(func=ast.Attribute(attr="shows") | ast.Name("shows")):
                    yield node
                case _:
                    pass


def _read_marker(
    marker: ast.Call, path: Path, test: str, found: list[Showing], problems: list[Problem]
) -> None:
    for argument in marker.args:
        match argument:
            case ast.Constant(value=str(name)):
                found.append(Showing(id=name, path=path, line=argument.lineno, test=test))
            case _:
                message = "the ids of `shows` must be written out as strings"
                problems.append(Problem(path=path, line=argument.lineno, message=message))


# ------------------------------------------------------------------ both together


def statuses(catalogue: Catalogue, shown: Sequence[Showing]) -> list[Status]:
    tests: dict[str, list[str]] = {}
    for showing in shown:
        tests.setdefault(showing.id, []).append(showing.test)
    return [
        Status(requirement=requirement, tests=tuple(tests.get(requirement.id, ())))
        for requirement in catalogue.requirements.values()
    ]


def contradictions(catalogue: Catalogue, shown: Sequence[Showing]) -> list[Problem]:
    """Markers and states that do not fit together."""
    problems = [
        Problem(path=showing.path, line=showing.line, message=message)
        for showing in shown
        if (message := _wrong_marker(catalogue, showing.id))
    ]
    marked = {showing.id for showing in shown}
    for requirement in catalogue.requirements.values():
        if requirement.state in {"shown", "partly"} and requirement.id not in marked:
            message = f"no test shows {requirement.id}: mark one, or say {{missing: ...}} or {{against: ...}}"
            problems.append(Problem(path=catalogue.path, line=requirement.line, message=message))
    return problems


def _wrong_marker(catalogue: Catalogue, name: str) -> str | None:
    requirement = catalogue.requirements.get(name)
    if requirement is None:
        return f"{name} is not in the catalogue"
    if requirement.state in {"missing", "against"}:
        return f"{name} was {STATES[requirement.state]}, so a test cannot show it"
    return None


# ------------------------------------------------------------------ printing


def print_table(catalogue: Catalogue, rows: Sequence[Status]) -> None:
    """The four counts, in all and by section."""
    print(f"{'':>3} {'section':<62} {'total':>6}" + "".join(f" {words:>15}" for words in STATES.values()))
    for number, title in catalogue.sections.items():
        part = [row for row in rows if row.requirement.section == number]
        if part:
            print(f"{number:>3} {title:<62} {_counts(part)}")
    print(f"{'':>3} {'all':<62} {_counts(rows)}")


def _counts(rows: Sequence[Status]) -> str:
    counts = Counter(row.requirement.state for row in rows)
    return f"{len(rows):>6}" + "".join(f" {counts[state]:>15}" for state in STATES)


def print_lines(rows: Sequence[Status]) -> None:
    for row in rows:
        requirement = row.requirement
        reason = f": {requirement.reason}" if requirement.reason else ""
        print(f"{requirement.id}  {requirement.text}\n    {STATES[requirement.state]}{reason}")
        for test in row.tests:
            print(f"        {test}")


def as_json(catalogue: Catalogue, rows: Sequence[Status]) -> str:
    return json.dumps(
        {
            "totals": {"total": len(rows), **Counter(row.requirement.state for row in rows)},
            "sections": [{"number": n, "title": title} for n, title in catalogue.sections.items()],
            "requirements": [_as_dict(row) for row in rows],
        },
        indent=2,
        ensure_ascii=False,
    )


def _as_dict(row: Status) -> dict[str, object]:
    requirement = row.requirement
    return {
        "id": requirement.id,
        "section": requirement.section,
        "text": requirement.text,
        "sources": requirement.sources,
        "state": requirement.state,
        "reason": requirement.reason or None,
        "tests": row.tests,
    }


# ------------------------------------------------------------------ the program


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    catalogue = read_catalogue(options.catalogue)
    shown, unreadable = showings(options.tests)
    if options.check:
        return _check([*catalogue.problems, *unreadable, *contradictions(catalogue, shown)])
    rows = [row for row in statuses(catalogue, shown) if options.section in (None, row.requirement.section)]
    if options.json:
        print(as_json(catalogue, rows))
    elif options.section is not None:
        print_lines(rows)
    else:
        print_table(catalogue, rows)
    return 0


def _check(problems: Sequence[Problem]) -> int:
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="State of each requirement: shown, partly shown, not built, or decided against."
    )
    parser.add_argument("--section", type=int, metavar="N", help="list the lines of one section")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--check", action="store_true", help="fail on ids and notes that are wrong")
    parser.add_argument("--catalogue", type=Path, default=ROOT / "docs" / "internals" / "requirements.md")
    parser.add_argument("--tests", type=Path, default=ROOT / "tests")
    return parser.parse_args(arguments)


def _relative(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


if __name__ == "__main__":
    sys.exit(main())
