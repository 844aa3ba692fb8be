"""Look up known vulnerabilities of the packages of this environment and of the npm packages of the page.

    python -m tools.audit

Asks the advisory databases of PyPI (through pip-audit) and of npm. Ends with 0 if all packages were looked up
and none has a known vulnerability, 1 if some have, and 69 if a database could not be asked: then nothing is
known, which must not look like success.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tools.dashboard import SOURCE, UNAVAILABLE, npm_command

CLEAN, FOUND, UNKNOWN = 0, 1, UNAVAILABLE
OURS = "forebay"
_PYTHON = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"]
_NPM = ("audit", "--json", "--package-lock-only")


def judge(packages: list[dict[str, Any]]) -> tuple[int, list[str]]:
    """Return the exit status and the lines to print for a report of pip-audit."""
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


def judge_npm(report: dict[str, Any]) -> tuple[int, list[str]]:
    """Return the exit status and the lines to print for a report of `npm audit`."""
    found = report.get("vulnerabilities")
    if found is None:
        return UNKNOWN, ["The advisory database of npm cannot be reached from here: nothing was looked up."]
    if not found:
        total = report["metadata"]["dependencies"]["total"]
        return CLEAN, [f"{total} npm packages looked up, no known vulnerability"]
    return FOUND, [f"npm {name} {one['range']}: {one['severity']}" for name, one in sorted(found.items())]


def _report(command: list[str], **options: Any) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        print(done.stderr.strip()[-1_000:])
        return {}
    return report


def main() -> int:
    command, env = npm_command()
    results = [
        judge(_report(_PYTHON).get("dependencies", [])),
        judge_npm(_report([*command, *_NPM], cwd=SOURCE, env=env)),
    ]
    for _, lines in results:
        print("\n".join(lines))
    statuses = {status for status, _ in results}
    return next(status for status in (FOUND, UNKNOWN, CLEAN) if status in statuses)


if __name__ == "__main__":
    sys.exit(main())
