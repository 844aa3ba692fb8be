"""What of docs/requirements.md is shown by tests, what waits, and what was decided against.

    python tools/requirements.py               a table by section
    python tools/requirements.py --section 4   the lines of one section, with the tests that show them
    python tools/requirements.py --json        everything, for programs
    python tools/requirements.py --check       fail on ids, steps and notes that do not make sense

A test says what it shows with `pytest.mark.shows("R-JOB-01", ...)`, as a decorator of a function or a
class, or as `pytestmark`. The tests are read, not run.
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
STEPS_HEADING = "## Steps"
STEP = re.compile(r"^\d+\. (.+)$")
DEFAULT = re.compile(r"^Waits for: (.+)$")
LINE = re.compile(
    r"^- \*\*(?P<id>R-[A-Z]+-\d+)\*\* (?P<text>.+?)"
    r" \[(?P<sources>\d{3}(?: \d{3})*)\]"
    r"(?: \{(?P<note>[^{}]*)\})?$"
)
LINE_START = "- **R-"
NOTE = re.compile(r"^(waits|against): (.+)$")


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
    """One line of the catalogue."""

    id: str
    text: str
    sources: tuple[str, ...]
    section: int
    line: int
    waits_for: str
    against: str | None


@dataclass(slots=True, kw_only=True)
class Catalogue:
    """The catalogue as read, with what was wrong in it."""

    steps: list[str] = field(default_factory=list)
    sections: dict[int, str] = field(default_factory=dict)
    requirements: dict[str, Requirement] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Showing:
    """A test that says it shows a requirement."""

    id: str
    path: Path
    line: int
    test: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Where a requirement stands: shown, waiting or against."""

    requirement: Requirement
    tests: tuple[str, ...]

    @property
    def word(self) -> str:
        if self.requirement.against is not None:
            return "against"
        return "shown" if self.tests else "waiting"


# ------------------------------------------------------------------ the catalogue


class CatalogueReader:
    """Reads the catalogue line by line; what it cannot understand becomes a problem."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found = Catalogue()
        self._section = 0
        self._default = ""
        self._in_steps = False

    def read(self) -> Catalogue:
        for number, text in enumerate(self._path.read_text(encoding="utf-8").splitlines(), start=1):
            self._take(number, text)
        return self._found

    def _take(self, number: int, text: str) -> None:
        if text.startswith("## "):
            self._open_section(text)
        elif self._in_steps and (step := STEP.match(text)):
            self._found.steps.append(step[1])
        elif default := DEFAULT.match(text):
            self._default = self._known_step(number, default[1])
        elif text.startswith(LINE_START):
            self._take_requirement(number, text)

    def _open_section(self, text: str) -> None:
        self._in_steps = text == STEPS_HEADING
        self._default = ""
        if match := SECTION.match(text):
            self._section = int(match[1])
            self._found.sections[self._section] = match[2]

    def _take_requirement(self, number: int, text: str) -> None:
        match = LINE.match(text)
        if match is None:
            self._complain(
                number, "expected `- **R-XXX-nn** text [sources] {waits: step}` or `{against: reason}`"
            )
            return
        if match["id"] in self._found.requirements:
            self._complain(number, f"{match['id']} stands here for the second time")
        waits_for, against = self._read_note(number, match["note"])
        self._found.requirements[match["id"]] = Requirement(
            id=match["id"],
            text=match["text"],
            sources=tuple(match["sources"].split()),
            section=self._section,
            line=number,
            waits_for=waits_for,
            against=against,
        )

    def _read_note(self, number: int, note: str | None) -> tuple[str, str | None]:
        if note is None:
            if not self._default:
                self._complain(number, "the section has no line `Waits for: step` before this one")
            return self._default, None
        match = NOTE.match(note)
        if match is None:
            self._complain(number, f"{{{note}}} is neither {{waits: step}} nor {{against: reason}}")
            return self._default, None
        if match[1] == "against":
            return "", match[2]
        return self._known_step(number, match[2]), None

    def _known_step(self, number: int, step: str) -> str:
        if step not in self._found.steps:
            self._complain(
                number, f"no step is called {step!r}; the steps are listed under {STEPS_HEADING!r}"
            )
        return step

    def _complain(self, number: int, message: str) -> None:
        self._found.problems.append(Problem(path=self._path, line=number, message=message))


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
    """Markers that name an id which is unknown or decided against."""
    return [
        Problem(path=showing.path, line=showing.line, message=message)
        for showing in shown
        if (message := _contradiction(catalogue, showing.id))
    ]


def _contradiction(catalogue: Catalogue, name: str) -> str | None:
    requirement = catalogue.requirements.get(name)
    if requirement is None:
        return f"{name} is not in the catalogue"
    if requirement.against is not None:
        return f"{name} was decided against, so a test cannot show it"
    return None


# ------------------------------------------------------------------ printing


def print_table(catalogue: Catalogue, rows: Sequence[Status]) -> None:
    """Counts by section; the last column says how many lines wait for which step."""
    print(f"{'':>3} {'section':<62} {'total':>5} {'shown':>5} {'against':>7} {'waits':>5}  by step")
    for number, title in catalogue.sections.items():
        part = [row for row in rows if row.requirement.section == number]
        if part:
            print(f"{number:>3} {title:<62} {_counts(part)}  {_by_step(catalogue, part)}")
    print(f"{'':>3} {'all':<62} {_counts(rows)}")
    print("\nwaiting, by step")
    waiting = waiting_by_step(rows)
    for number, step in enumerate(catalogue.steps, start=1):
        print(f"  {number:>2}  {waiting.get(step, 0):>5}  {step}")


def _counts(rows: Sequence[Status]) -> str:
    words = Counter(row.word for row in rows)
    return f"{len(rows):>5} {words['shown']:>5} {words['against']:>7} {words['waiting']:>5}"


def _by_step(catalogue: Catalogue, rows: Sequence[Status]) -> str:
    waiting = waiting_by_step(rows)
    steps = enumerate(catalogue.steps, start=1)
    return " ".join(f"{number}:{waiting[step]}" for number, step in steps if step in waiting)


def waiting_by_step(rows: Sequence[Status]) -> dict[str, int]:
    return dict(Counter(row.requirement.waits_for for row in rows if row.word == "waiting"))


def print_lines(rows: Sequence[Status]) -> None:
    for row in rows:
        print(f"{row.requirement.id}  {row.requirement.text}\n    {_story(row)}")


def _story(row: Status) -> str:
    match row.word:
        case "shown":
            return "shown by " + "\n             ".join(row.tests)
        case "against":
            return f"decided against: {row.requirement.against}"
        case _:
            return f"waits for: {row.requirement.waits_for}"


def as_json(catalogue: Catalogue, rows: Sequence[Status]) -> str:
    return json.dumps(
        {
            "totals": {"total": len(rows), **Counter(row.word for row in rows)},
            "waiting": waiting_by_step(rows),
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
        "status": row.word,
        "waits_for": requirement.waits_for if row.word == "waiting" else None,
        "against": requirement.against,
        "tests": row.tests,
    }


# ------------------------------------------------------------------ the program


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    catalogue = CatalogueReader(options.catalogue).read()
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
    parser = argparse.ArgumentParser(description="What of docs/requirements.md is shown by tests.")
    parser.add_argument("--section", type=int, metavar="N", help="list the lines of one section")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--check", action="store_true", help="fail on ids, steps and notes that are wrong")
    parser.add_argument("--catalogue", type=Path, default=ROOT / "docs" / "requirements.md")
    parser.add_argument("--tests", type=Path, default=ROOT / "tests")
    return parser.parse_args(arguments)


def _relative(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


if __name__ == "__main__":
    sys.exit(main())
