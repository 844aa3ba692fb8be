"""Type completeness of all names that a user can import, as a user's type checker sees it.

python tools/typed.py            name what is not, with the reason

It asks basedpyright, which is pyright with its own Node, by `--verifytypes`. Symbols of other packages are
left out of it: whether they bring types is not for us to say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

PACKAGES: Final = ("forebay", "pytest_forebay")


def judged(package: str) -> dict[str, Any]:
    """Return the type checker's report about an installed package."""
    words = ["-m", "basedpyright", "--outputjson", "--ignoreexternal", "--verifytypes", package]
    # It looks for packages where the first Python on the path has them, and does not heed --pythonpath here.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    env = {**os.environ, "PATH": path}
    done = subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True, check=False)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise SystemExit(
            f"the type checker has said nothing that can be read:\n{done.stdout}{done.stderr}"
        ) from None
    return report


def faults(report: dict[str, Any]) -> list[str]:
    """Return a line for each name that is not fully typed."""
    found = []
    for symbol in report["typeCompleteness"]["symbols"]:
        if symbol["isExported"] and not symbol["isTypeKnown"]:
            reasons = [one["message"].splitlines()[0] for one in symbol["diagnostics"]]
            found.append(f"{symbol['name']}: {'; '.join(dict.fromkeys(reasons)) or 'its type is not known'}")
    return found


def main() -> int:
    is_bad = False
    for package in PACKAGES:
        report = judged(package)
        whole = report["typeCompleteness"]
        for line in faults(report):
            print(line)
        for one in report["generalDiagnostics"]:
            print(f"{one.get('file', package)}: {one['message']}")
        counts = whole["exportedSymbolCounts"]
        print(f"{package}: {whole['completenessScore']:.1%} complete, of {sum(counts.values()):,} names")
        is_bad = is_bad or whole["completenessScore"] < 1
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
