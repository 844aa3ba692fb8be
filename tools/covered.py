"""Coverage of each part of Forebay by its tests, next to its goal: `make evidence WHAT=covered`.

    python tools/covered.py                    run the tests of all parts, then say it: twenty minutes
    python tools/covered.py --part worker      one part
    python tools/covered.py --report FILE      read a report of `coverage json` that is there already

For each part the share of its lines and of its branches, and of what must never fail, every line: the
operations of a store that are one transaction, the ways in which a worker stops, what raises an alert. Ends
with 1 if a part is below its goal. What runs in processes of its own is not seen, so the real shares are
higher.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = "src/forebay/"
OTHERS: Final = "sqlite or postgresql or redis or remote"  # stores that are looked at elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part, the tests that are about it, and its goals in percent."""

    name: str
    places: tuple[str, ...]
    tests: tuple[str, ...]
    lines: float
    branches: float
    whole: tuple[str, ...]  # file and function: every line of these


PARTS: Final = (
    Part(
        name="queue",
        places=("app/", "operations/", "payload/", "stores/memory/"),
        tests=(
            *("tests/app", "tests/operations", "tests/payload", "tests/stores/contract"),
            *("-k", f"memory or not ({OTHERS})"),
        ),
        lines=95,
        branches=90,
        whole=(
            "stores/memory/store.py::MemoryStore.insert",
            "stores/memory/store.py::MemoryStore.settle_and_claim",
            "stores/memory/settle_and_claim.py::settle_and_claim",
        ),
    ),
    Part(
        name="worker",
        places=("worker/",),
        tests=("tests/worker",),
        lines=90,
        branches=85,
        whole=(
            "worker/worker.py::Worker.stop",
            "worker/worker.py::Worker.request_stop",
            "worker/worker.py::Worker.stop_now",
            "worker/coordinator.py::Coordinator.return_unstarted",
            "worker/coordinator.py::Coordinator.interrupt_all",
        ),
    ),
    Part(
        name="dashboard",
        places=(
            *("service/http/", "service/permissions/", "service/resources/", "service/runtime/"),
            *("service/schema/", "dashboard/"),
        ),
        tests=(
            *("tests/service", "tests/dashboard", "tests/maintenance/test_alert_evaluator.py"),
            *("tests/domain/test_alert.py", "tests/domain/test_alert_condition.py"),
            *("tests/app/test_alerts.py", "tests/app/test_alert_bounds.py"),
        ),
        lines=85,
        branches=80,
        whole=(
            "operations/alerts/evaluation.py::evaluate",
            "operations/alerts/evaluation.py::_Evaluation.evaluate",
            "operations/alerts/evaluation.py::_Evaluation._evaluate_one",
            "operations/alerts/evaluation.py::_Evaluation._raise_alert",
            "operations/alerts/evaluation.py::_Evaluation._resolve_alert",
            "operations/alerts/evaluation.py::_record_alert",
            "operations/alerts/notification_jobs.py::enqueue_notifications",
            "domain/alert.py::advance",
            "domain/alert.py::raise_alert",
            "domain/alert_condition.py::MetricComparison.holds",
            "domain/alert_condition.py::BooleanCondition.holds",
            "maintenance/alert_evaluator.py::AlertEvaluator.run",
        ),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Reached lines or branches of a part, and the goal."""

    name: str
    reached: int
    total: int
    goal: float

    @property
    def percent(self) -> float:
        return 100.0 * self.reached / self.total if self.total else 100.0

    @property
    def is_met(self) -> bool:
        return self.percent >= self.goal

    def __str__(self) -> str:
        result = "met" if self.is_met else "MISSED"
        return f"{self.name:<58}{self.percent:>7.1f} %   goal {self.goal:.0f} %  {result}"


def shares(part: Part, report: Mapping[str, Any]) -> Iterator[Share]:
    """Yield the results of a part in a report of `coverage json`."""
    files = {name.split(SOURCE, 1)[1]: about for name, about in report["files"].items() if SOURCE in name}
    own = [about["summary"] for name, about in files.items() if name.startswith(part.places)]
    yield _share(f"{part.name}: lines", own, "covered_lines", "num_statements", part.lines)
    yield _share(f"{part.name}: branches", own, "covered_branches", "num_branches", part.branches)
    for place in part.whole:
        name, function = place.split("::")
        try:
            summary = files[name]["functions"][function]["summary"]
        except KeyError:
            raise SystemExit(
                f"there is no {place}: name what has taken its place in tools/covered.py"
            ) from None
        yield _share(place, [summary], "covered_lines", "num_statements", 100)


def _share(name: str, summaries: Sequence[Mapping[str, int]], reached: str, total: str, goal: float) -> Share:
    return Share(
        name=name,
        reached=sum(one[reached] for one in summaries),
        total=sum(one[total] for one in summaries),
        goal=goal,
    )


def measured(part: Part) -> Mapping[str, Any]:
    """Run the tests of a part; answers what they have reached."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        packages = {SOURCE + place.split("/", 1)[0] for place in (*part.places, *part.whole)}
        subprocess.run(
            [
                sys.executable, "-m", "pytest", "--quiet", "--numprocesses", "2", *part.tests, "--cov-branch",
                *(f"--cov={package}" for package in sorted(packages)),
                f"--cov-report=json:{report}", "--cov-report=",
            ],
            cwd=ROOT,
            check=True,
        )  # fmt: skip
        return read(report)


def read(report: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--part", choices=[part.name for part in PARTS], help="only this one")
    parser.add_argument("--report", type=Path, help="a report of `coverage json`, instead of running tests")
    chosen = parser.parse_args()
    is_good = True
    for part in PARTS:
        if chosen.part in (None, part.name):
            report = read(chosen.report) if chosen.report else measured(part)
            found = list(shares(part, report))
            print("\n".join(map(str, found)))
            is_good = is_good and all(one.is_met for one in found)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
