"""Are there known vulnerabilities in the packages that this environment has?

    python tools/audit.py        ask the advisory database of PyPI, through pip-audit

Ends with 0 if all packages were looked up and none has one, 1 if some have, and 2 if the database could not
be asked: then nothing is known, which must not look like good news.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

CLEAN, FOUND, UNKNOWN = 0, 1, 2
OURS = "forebay"


def verdict(packages: list[dict[str, Any]]) -> tuple[int, list[str]]:
    """What a report of pip-audit means: an exit status, and lines to print."""
    others = [one for one in packages if one["name"] != OURS]  # not on PyPI in this version
    unknown = sorted(one["name"] for one in others if "skip_reason" in one)
    lines = [
        f"{one['name']} {one['version']}: {flaw['id']}, mended in {', '.join(flaw['fix_versions'])}"
        for one in others
        for flaw in one.get("vulns", ())
    ]
    if len(unknown) == len(others):
        return UNKNOWN, ["The advisory database cannot be reached from here: nothing was looked up."]
    if unknown:
        lines.append(f"Not looked up: {', '.join(unknown)}")
    known = len(others) - len(unknown)
    if any(one.get("vulns") for one in others):
        return FOUND, [*lines, f"{known} packages looked up"]
    return (UNKNOWN if unknown else CLEAN), [*lines, f"{known} packages looked up, no known vulnerability"]


def main() -> int:
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(done.stderr.strip()[-1_000:])
        print("The advisory database cannot be reached from here: nothing was looked up.")
        return UNKNOWN
    status, lines = verdict(packages)
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main())
