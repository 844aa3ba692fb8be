"""Flaky tests, which pass at one time and fail at another: `make evidence WHAT=flaky TIMES=20`.

    python tools/flaky.py --times 20 tests/worker        all that follows goes to pytest
    python tools/flaky.py --read one.xml two.xml ...     reports of `pytest --junitxml` that are there already

Runs the same tests again and again on three processes, so that each time others stand beside each other, and
compares. Ends with 1 if a test has failed at any time, and says which have failed always, and which now and
then.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

ROOT: Final = Path(__file__).resolve().parent.parent
PYTEST: Final = (sys.executable, "-m", "pytest", "--quiet", "--numprocesses", "3", "--dist", "worksteal")
RAN: Final = (0, 1)  # all have passed, or some have failed; anything else was broken off


def outcomes(report: Path) -> dict[str, bool]:
    """Return for each test of a run whether it has passed."""
    found: dict[str, bool] = {}
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - written by pytest here
        name = f"{case.get('classname')}::{case.get('name')}"
        has_failed = case.find("failure") is not None or case.find("error") is not None
        found[name] = found.get(name, True) and not has_failed
    return found


def compared(runs: Iterable[dict[str, bool]]) -> tuple[dict[str, str], int]:
    """Of the tests that have failed, how often; and how many tests there were."""
    ran: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for run in runs:
        ran.update(run.keys())
        failed.update(name for name, has_passed in run.items() if not has_passed)
    return {
        name: "always" if times == ran[name] else f"{times} of {ran[name]} times"
        for name, times in failed.most_common()
    }, len(ran)


def run(times: int, arguments: Sequence[str]) -> list[dict[str, bool]]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, times + 1):
            report = Path(folder) / f"{number}.xml"
            done = subprocess.run([*PYTEST, f"--junitxml={report}", *arguments], cwd=ROOT, check=False)
            if done.returncode not in RAN or not report.exists():
                raise SystemExit(f"pytest ended with {done.returncode}: this run says nothing")
            found.append(outcomes(report))
            if not found[-1]:
                raise SystemExit("no test ran")
            passed = sum(found[-1].values())
            print(f"run {number} of {times}: {passed:,} of {len(found[-1]):,} passed", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--times", type=int, default=20, help="how often (20)")
    parser.add_argument("--read", type=Path, nargs="+", help="reports to compare, instead of running tests")
    chosen, arguments = parser.parse_known_args()
    failed, total = compared(map(outcomes, chosen.read) if chosen.read else run(chosen.times, arguments))
    for name, often in failed.items():
        print(f"{often:<16}{name}")
    print(f"{total:,} tests, {len(failed):,} failed at some time")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
