"""Names and words against the rules of the house: docs/reference/glossary.md and CONTRIBUTING.md.

    python -m tools.names                    every finding, then the counts; fails beyond a bound
    python -m tools.names src/forebay/cli    findings of these files and folders only; fails if there is one
    python -m tools.names --counts           the counts by check and folder

The lists stand in tools/words.py. All folders are read for words, and all modules for gerunds. The other
checks are for src alone: names of tests are sentences. Not read are records (decisions, evidence, the list
of requirements, the table of renamed modules), generated code, and the lists of refused words themselves.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import words

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = "src/forebay/"
READ: Final = (
    *("src/**/*", "dashboard/src/**/*", "docs/**/*.md", "*.md", "*.py", "Makefile", "pyproject.toml"),
    *(f"{folder}/**/*" for folder in ("tests", "tools", "benchmarks", "evidence", "examples", "deploy")),
)
SUFFIXES: Final = frozenset(
    {"", ".css", ".env", ".html", ".js", ".lua", ".md", ".mjs", ".proto", ".py", ".service", ".sh", ".sql"}
    | {".toml", ".ts", ".tsx", ".txt", ".yaml"}
)
RECORDS: Final = (
    *("docs/decisions/*", "docs/evidence/*", "docs/internals/requirements.md", "docs/internals/renamed.md"),
    *("src/forebay/service/generated/*", "src/forebay/dashboard/static/*"),
    *("tools/words.py", "tests/house/test_names.py"),  # the refused words, and examples of findings
)
# Findings that are allowed by check; of every other check none.
BOUNDS: Final = {"anonymous": words.MAX_ANONYMOUS, "participle": words.MAX_PARTICIPLES}
CHECKS: Final = ("gerund", "twin", "participle", "docstring", "engine file", "word", "anonymous")

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class Finding(NamedTuple):
    """A name or word that breaks a rule, and the remedy."""

    check: str
    path: str
    line: int
    found: str
    use: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.check}: {self.found} -> {self.use}"


def findings(root: Path = ROOT) -> list[Finding]:
    """Return all findings, file by file."""
    paths = list(read_paths(root))
    modules = {path: ast.parse(read(root / path), path) for path in paths if _is_of_package(path)}
    found = [
        *gerund_modules(path for path in paths if path.endswith(".py")),
        *twin_classes(modules),
        *engine_files(modules),
        *(finding for path, tree in modules.items() for finding in participle_functions(path, tree)),
        *(finding for path, tree in modules.items() for finding in question_docstrings(path, tree)),
        *(finding for path in paths for finding in refused_words(path, read(root / path))),
        *refused_files(paths),
    ]
    return sorted(found, key=lambda finding: (finding.path, finding.line))


def read_paths(root: Path) -> Iterator[str]:
    """Yield the paths that are read, relative to the root."""
    for pattern in READ:
        for file in sorted(root.glob(pattern)):
            path = file.relative_to(root).as_posix()
            is_text = file.is_file() and file.suffix in SUFFIXES
            if is_text and not any(fnmatchcase(path, record) for record in RECORDS):
                yield path


def _is_of_package(path: str) -> bool:
    return path.startswith(PACKAGE) and path.endswith(".py")


@cache
def read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


# Modules


def gerund_modules(modules: Iterable[str]) -> Iterator[Finding]:
    """Yield modules and packages whose name ends in `ing`, but for the established nouns and their tests."""
    for path in modules:
        parts = path.removeprefix("src/").removesuffix(".py").split("/")
        # A package is reported once, by its __init__.
        name = parts[-2] if parts[-1] == "__init__" and len(parts) > 1 else parts[-1]
        if name.endswith("ing") and name.removeprefix("test_") not in words.GERUNDS:
            yield Finding("gerund", path, 1, name, "the noun of the thing in it")


def engine_files(modules: Iterable[str]) -> Iterator[Finding]:
    """Yield files of engines that are named for no part of the store contract."""
    for path in modules:
        match path.removeprefix(f"{PACKAGE}stores/").removesuffix(".py").split("/"):
            case [engine, name] if (specifics := words.ENGINE_SPECIFICS.get(engine)) is not None:
                if name not in words.ENGINE_FILES | specifics:
                    yield Finding("engine file", path, 1, name, "a name of ENGINE_FILES in tools/words.py")


def question_docstrings(path: str, tree: ast.Module) -> Iterator[Finding]:
    """Yield module docstrings that begin with a question word."""
    text = ast.get_docstring(tree) or ""
    first = text.partition(" ")[0]
    if first in words.QUESTION_WORDS:
        yield Finding("docstring", path, 1, f"{first} ...", "the name of the thing")


# Classes and functions


def twin_classes(modules: dict[str, ast.Module]) -> Iterator[Finding]:
    """Yield public top-level classes of the package whose name stands in two modules."""
    places: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for path in (path for path in modules if path.startswith(PACKAGE)):
        for node in (node for node in modules[path].body if isinstance(node, ast.ClassDef)):
            if not (node.name[0] == "_" or _may_have_a_twin(node.name, path.removeprefix(PACKAGE))):
                places[node.name].append((path, node.lineno))
    for name, several in places.items():
        if len(several) > 1:
            for path, line in several:
                yield Finding("twin", path, line, name, "a name of its own")


def _may_have_a_twin(name: str, path: str) -> bool:
    if fnmatchcase(path, words.FOREIGN):
        return True
    return name in words.TWINS and fnmatchcase(path, words.TWINS[name][0])


def participle_functions(path: str, tree: ast.Module) -> Iterator[Finding]:
    """Yield functions and methods that act and are named by a past participle.

    The rule: the first word of the name is a past participle, and it stands alone (`looked`), or before a
    particle (`sorted_out`, `taken_from_queue`), or the function returns nothing, so it can only act
    (`changed_state`). Not counted are properties, predicates (they return bool), commands of the command line
    (named by what a user types) and functions inside functions.
    """
    for node in _functions(tree):
        first, *rest = node.name.strip("_").split("_")
        acts = not rest or rest[0] in words.PARTICLES or _returns(node, "None")
        if acts and _is_participle(first) and not _is_value(node):
            yield Finding("participle", path, node.lineno, f"{node.name}()", "an imperative verb")


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    scopes = (node for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.ClassDef)))
    for scope in scopes:
        yield from (n for n in scope.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)))


def _is_participle(word: str) -> bool:
    return word in words.PARTICIPLES or (word.endswith("ed") and word not in words.NO_PARTICIPLES)


def _is_value(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    decorators = " ".join(map(ast.unparse, node.decorator_list))
    return bool(re.search(r"property|\.command\b", decorators)) or _returns(node, "bool")


def _returns(node: ast.FunctionDef | ast.AsyncFunctionDef, kind: str) -> bool:
    return node.returns is not None and ast.unparse(node.returns) == kind


# Words


def refused_words(path: str, text: str) -> Iterator[Finding]:
    """Yield each refused word, once for each line that it stands on."""
    names: dict[int, list[str]] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        for form in sorted(_FORMS.keys() & split_words(line)):
            if _FORMS[form].only_in_names:
                # Tokenized only where it matters: most files have no such word.
                names = _python_names(path, text) if names is None else names
                if form not in split_words(" ".join(names.get(number, ()))):
                    continue
            if not _means_something_else(path, form):
                yield _refused(path, number, form)


def refused_files(paths: Iterable[str]) -> Iterator[Finding]:
    """Yield each refused word in the name of a file."""
    for path in paths:
        for form in sorted(_FORMS.keys() & split_words(Path(path).name)):
            if not _means_something_else(path, form):
                yield _refused(path, 1, form)


def _refused(path: str, line: int, form: str) -> Finding:
    word = _FORMS[form]
    return Finding("anonymous" if word is words.ANONYMOUS else "word", path, line, form, word.use)


def split_words(text: str) -> set[str]:
    """Return the words of a text in lower case, also those inside names: `hasRoom`, `free_slot`, `JobCount`.

    Two words next to each other are given as one as well: `free_slot`, also for "free slot" and `free-slot`.
    """
    single = [word.lower() for word in _WORD.findall(text)]
    return {*single, *map("_".join, pairwise(single))}


def _python_names(path: str, text: str) -> dict[int, list[str]]:
    if not path.endswith(".py"):
        return {}
    found: defaultdict[int, list[str]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        # A test is named by a sentence, which is prose.
        if token.type == tokenize.NAME and not token.string.startswith("test_"):
            found[token.start[0]].append(token.string)
    return found


def _means_something_else(path: str, form: str) -> bool:
    return any(form == word and fnmatchcase(path, pattern) for pattern, word in words.OTHER_MEANING)


_FORMS: Final = {form: word for word in (*words.WORDS, words.ANONYMOUS) for form in word.forms}


# The program


def exceeded(found: Iterable[Finding]) -> dict[str, int]:
    """Return the checks with more findings than their bound allows, with their counts."""
    counts = Counter(finding.check for finding in found)
    return {check: counts[check] for check in CHECKS if counts[check] > BOUNDS.get(check, 0)}


def counts_table(found: Sequence[Finding]) -> str:
    """Return the counts by folder and check as text."""
    by_folder: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for finding in found:
        by_folder[_folder(finding.path)][finding.check] += 1
    total = Counter(finding.check for finding in found)
    bounds = {check: BOUNDS.get(check, 0) for check in CHECKS}
    rows: list[tuple[str, dict[str, int] | Counter[str]]] = [*sorted(by_folder.items()), ("all", total)]
    lines = [
        _row("folder", CHECKS),
        *(_row(name, [count[check] for check in CHECKS]) for name, count in rows),
    ]
    return "\n".join([*lines, _row("bound", [bounds[check] for check in CHECKS])])


def _folder(path: str) -> str:
    parts = path.split("/")
    depth = 4 if path.startswith(f"{PACKAGE}stores/") else 3
    return "/".join(parts[: min(depth, len(parts) - 1)]) or path


def _row(name: str, cells: Iterable[object]) -> str:
    return f"{name:<32}" + "".join(f"{cell!s:>12}" for cell in cells)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check names and words against the rules of the house.")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="only findings of these files and folders")
    parser.add_argument("--counts", action="store_true", help="print the counts by check and folder only")
    options = parser.parse_args(arguments)
    chosen = tuple(str(Path(path).absolute()) for path in options.paths)
    found = [one for one in findings() if not chosen or _is_within(ROOT / one.path, chosen)]
    if not options.counts:
        print("\n".join(map(str, found)))
    print(counts_table(found))
    if chosen:
        return 1 if found else 0
    for check, count in exceeded(found).items():
        print(f"{check}: {count}, allowed are {BOUNDS.get(check, 0)}")
    return 1 if exceeded(found) else 0


def _is_within(path: Path, chosen: Iterable[str]) -> bool:
    return any(path.is_relative_to(one) for one in chosen)


if __name__ == "__main__":
    sys.exit(main())
