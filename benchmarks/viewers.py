"""How a server bears people who look at its dashboard: ten of them for half a minute.

Each asks about once a second for what the open views of the page ask for: queues, workers, a page of jobs and
how many fit, metrics over time; with another filter each time. Beside the times stands what went wrong.

    python -m benchmarks.viewers                                  a server on SQLite with ten thousand jobs
    python -m benchmarks.viewers --users 50 --seconds 60
    python -m benchmarks.viewers --address http://127.0.0.1:8080  one that runs; FOREBAY_API_KEY is its key

The goal is that nothing goes wrong, and 500 ms for a search.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from statistics import median, quantiles
from typing import Any, Final

import httpx2

from benchmarks.explorer import GOAL_MS, QUEUES, SOME, live_through
from benchmarks.measurements import Measurement, at_most, machine, parser, show, write
from forebay.stores.factory import open_engine
from tests.service.live_server import serving

EVERY_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 30.0
STATES: Final = ("completed", "cancelled", "dead", "pending")


@dataclass
class Seen:
    """What one viewer has seen: how long each kind of request took, and what was answered otherwise."""

    took: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    wrong: Counter[str] = field(default_factory=Counter)


class Viewer:
    """A user with an open page."""

    def __init__(self, address: str, key: str | None, number: int) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx2.Client(base_url=address, headers=headers, timeout=PATIENCE_SECONDS)
        self._dice = Random(number)
        self.seen = Seen()

    def look(self, until: float) -> Seen:
        """Look at everything again and again, once at least."""
        with self._client:
            while True:
                began = time.monotonic()
                for name, method, path, body in self._requests():
                    self._ask(name, method, path, body)
                if began + EVERY_SECONDS >= until:
                    return self.seen
                time.sleep(max(0.0, began + EVERY_SECONDS - time.monotonic()))

    def _requests(self) -> Iterator[tuple[str, str, str, Any]]:
        where = self._dice.choice(
            [
                {},
                {"queues": [self._dice.choice(QUEUES)]},
                {"states": [self._dice.choice(STATES)]},
                {"tasks": [f"shop.task_{self._dice.randrange(20)}"]},
                {"tags": ["newsletter"]},
                {"text": f"someone{self._dice.randrange(SOME)}@"},
            ]
        )
        yield "queues", "GET", "/v1/queues", None
        yield "workers", "GET", "/v1/workers?active_only=false", None
        yield "metrics", "GET", "/v1/metrics/series?metrics=completed,failed", None
        yield "search", "POST", "/v1/jobs/search", {"where": where, "limit": 50}
        yield "total", "POST", "/v1/jobs/search", {"where": where, "limit": 1, "with_total": True}

    def _ask(self, name: str, method: str, path: str, body: Any) -> None:
        began = time.monotonic()
        try:
            status = str(self._client.request(method, path, json=body).status_code)
        except httpx2.HTTPError as exc:
            status = type(exc).__name__
        self.seen.took[name].append(time.monotonic() - began)
        if status != "200":
            self.seen.wrong[f"{name}: {status}"] += 1


def measure_viewers(address: str, users: int, seconds: float, key: str | None = None) -> Seen:
    """What so many have seen together in so long."""
    all_seen, viewers = Seen(), [Viewer(address, key, number) for number in range(users)]
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(users) as people:
        for seen in people.map(lambda viewer: viewer.look(until), viewers):
            all_seen.wrong.update(seen.wrong)
            for name, took in seen.took.items():
                all_seen.took[name] += took
    return all_seen


def measurements(seen: Seen) -> Iterator[Measurement]:
    for name, took in seen.took.items():
        late = quantiles(took, n=100)[98] * 1e3 if len(took) > 1 else took[0] * 1e3
        goals = (at_most(late, GOAL_MS, " ms"),) if name in ("search", "total") else ()
        yield Measurement(
            f"{name}, p99 of {len(took):,}", late, " ms", f"median {median(took) * 1e3:.1f} ms", goals=goals
        )
    wrong = ", ".join(f"{what} {count}" for what, count in sorted(seen.wrong.items()))
    yield Measurement(
        "went wrong", seen.wrong.total(), "", wrong, goals=(at_most(seen.wrong.total(), 0, ""),)
    )


@contextmanager
def served(address: str | None) -> Iterator[str]:
    """The address of a server: a given one, or one of our own with some history."""
    if address is not None:
        yield address
        return
    with tempfile.TemporaryDirectory() as folder:
        engine = open_engine(f"sqlite:///{folder}/jobs.db")
        store = engine.store()
        live_through(store, SOME)
        with serving(engine) as found:
            yield found.address
        store.close()


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--users", type=int, default=10, help="how many look at once (10)")
    arguments.add_argument("--seconds", type=float, default=30.0, help="for how long (30)")
    arguments.add_argument("--address", help="a server that runs")
    options = arguments.parse_args()
    seconds = options.seconds / 10 if options.quick else options.seconds
    before = machine()
    with served(options.address) as address:
        found = list(
            measurements(measure_viewers(address, options.users, seconds, os.environ.get("FOREBAY_API_KEY")))
        )
    show(f"{options.users} people look at the dashboard for {seconds:g} s", found)
    write(options.json, before, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
