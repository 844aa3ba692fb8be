"""Statements of an engine as it sends them: with their fragments and without comments.

    python -m tools.statements postgres                  the names of all statements
    python -m tools.statements postgres claim_limited    one statement, to paste into the engine's shell

Tools that change a statement for a test know it by the path `forebay/stores/ENGINE/sql/NAME.sql`, whichever
file holds it and its fragments.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from forebay.stores.postgres.schema_setup_and_check import to_postgres
from forebay.stores.shared.statement_loader import compose_statements
from forebay.stores.sqlite.schema_setup_and_check import to_sqlite

SOURCE: Final = Path(__file__).resolve().parent.parent / "src"
STORES: Final = Path("forebay/stores")
DIALECTS: Final[Mapping[str, Callable[[str], str]]] = {"sqlite": to_sqlite, "postgres": to_postgres}
_REPLACED: Final = "replaced.sql"


@cache
def statements(engine: str, source: Path = SOURCE) -> dict[str, str]:
    """Return the statements of an engine by name. A tree is read once, before a tool changes it."""
    return compose_statements(*_folders(engine, source), DIALECTS[engine])


def statement_paths(engine: str, source: Path = SOURCE) -> dict[Path, str]:
    """Return the statements of an engine by the paths that stand for them."""
    return {
        STORES / engine / "sql" / f"{name}.sql": text
        for name, text in sorted(statements(engine, source).items())
    }


def read_source(path: Path, source: Path = SOURCE) -> str:
    """Return the text of a file, or of the statement that a path stands for."""
    if path.suffix == ".sql":
        return statements(path.parts[2], source)[path.stem]
    return (source / path).read_text(encoding="utf-8")


@contextmanager
def replace_source(path: Path, text: str, source: Path) -> Iterator[None]:
    """Put another text in the place of a file, or of a statement, while the block runs."""
    file = _holder(path, source) if path.suffix == ".sql" else source / path
    before = file.read_text(encoding="utf-8")
    replaced = (source / path).with_name(_REPLACED)
    try:
        if path.suffix == ".sql":
            # Not in its own file: that may be shared, and the text is in the dialect of one engine.
            file.write_text(_section(path.stem).sub("", before), encoding="utf-8")
            replaced.write_text(f"-- name: {path.stem}: replaced\n{text}\n", encoding="utf-8")
        else:
            file.write_text(text, encoding="utf-8")
        yield
    finally:
        file.write_text(before, encoding="utf-8")
        replaced.unlink(missing_ok=True)


def _folders(engine: str, source: Path) -> tuple[Path, Path]:
    return source / STORES / engine / "sql", source / STORES / "shared" / "sql"


def _holder(path: Path, source: Path) -> Path:
    """Return the file that holds a statement."""
    files = [file for folder in _folders(path.parts[2], source) for file in folder.glob("*.sql")]
    return next(file for file in files if _section(path.stem).search(file.read_text(encoding="utf-8")))


def _section(name: str) -> re.Pattern[str]:
    return re.compile(rf"^-- name: {name}: .*\n(?:(?!-- (?:name|fragment): ).*\n)*", re.MULTILINE)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Print a statement as the engine sends it.")
    parser.add_argument("engine", choices=sorted(DIALECTS))
    parser.add_argument("name", nargs="?")
    options = parser.parse_args(arguments)
    found = statements(options.engine)
    if options.name is None:
        print("\n".join(sorted(found)))
    elif options.name in found:
        print(found[options.name])
    else:
        parser.error(
            f"{options.engine} has no statement {options.name}; without a name all names are printed"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
