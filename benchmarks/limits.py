"""What a global limit and one by key cost, beside a drain without limits: `make bench WHAT=limits`.

The jobs have one of a thousand keys each. One handle completes the last hundred and claims the next hundred
in one call. Neither limit is ever reached for long: what is measured is the counting. Runs with and without
limits take turns, and the median of the rounds counts. A few batches before each are not counted: in these
the handle learns whether there are limits. That takes one slow round trip, however many jobs follow. Where
others use the machine too, processor time says more: that of this process and of the server.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks.cpu import Seconds, taken
from benchmarks.measurements import Measurement, at_least, machine, parser, show, write
from benchmarks.places import settled
from forebay.domain.concurrency_and_rate_limits import GLOBAL, Limit, key_scope
from forebay.domain.job import Job, NewJob, QueueName, WorkerId
from forebay.domain.lane import lanes_for_program
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from tests.urls import ENGINES, lent_url

QUEUE: Final = QueueName("default")
WORKER: Final = WorkerId("bench")
KEYS: Final = 1_000
BATCH: Final = 100
FEW: Final = 10 * BATCH
GOAL: Final = 0.7
LANES: Final = lanes_for_program(["send"], 1)


class Drain(NamedTuple):
    """How fast jobs went, from the first claim to the last completion, and what each of them cost."""

    per_second: float
    cpu_us: float


def drained(store: Store, jobs: int, cpu: Seconds) -> Drain:
    fill(store, FEW)
    drain(store, FEW)
    fill(store, jobs)
    began, had = time.perf_counter(), cpu()
    drain(store, jobs)
    return Drain(jobs / (time.perf_counter() - began), (cpu() - had) / jobs * 1e6)


def fill(store: Store, jobs: int) -> None:
    new = [
        NewJob(task="send", payload=b"x" * 109, limit_keys={"tenant": f"t{n % KEYS}"}) for n in range(jobs)
    ]
    for first in range(0, jobs, 1_000):
        store.insert(new[first : first + 1_000])


def drain(store: Store, jobs: int) -> None:
    done, left = list[Job](), jobs
    while left:
        answer = store.settle_and_claim(
            WORKER, settled(done), [QueueClaim(QUEUE, BATCH, lanes=LANES)], room=BATCH
        )
        left -= len(answer.settled)
        done = list(answer.jobs)


def measured(name: str, jobs: int, rounds: int, folder: Path) -> list[Measurement]:
    with lent_url(name, folder) as url:
        store = open_engine(url).store()
        pairs: list[tuple[Drain, Drain]] = []
        for _ in range(rounds):
            store.save_limit(Limit(scope=GLOBAL, concurrency=500))
            store.save_limit(Limit(scope=key_scope("tenant"), concurrency=10))
            limited = drained(store, jobs, taken(url))
            store.drop_limit(GLOBAL)
            store.drop_limit(key_scope("tenant"))
            pairs.append((limited, drained(store, jobs, taken(url))))
        store.close()
    speeds = [(one.per_second, other.per_second) for one, other in pairs]
    costs = [(one.cpu_us, other.cpu_us) for one, other in pairs]
    return [
        measurement(f"{name}: drain under limits", "/s", speeds, [one / other for one, other in speeds]),
        measurement(f"{name}: processor time of a job", "us", costs, [other / one for one, other in costs]),
    ]


def measurement(
    measure: str, unit: str, pairs: Sequence[tuple[float, float]], ratios: Sequence[float]
) -> Measurement:
    ratio = median(ratios)
    return Measurement(
        measure=measure,
        ours=median(pair[0] for pair in pairs),
        unit=unit,
        against=f"{median(pair[1] for pair in pairs):,.0f}{unit} without",
        ratio=ratio,
        goals=(at_least(ratio, GOAL, " of it"),),
        rounds=tuple(pair[0] for pair in pairs),
        against_rounds=tuple(pair[1] for pair in pairs),
    )


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--engine", choices=ENGINES, action="append")
    arguments.add_argument("--jobs", type=int, default=10_000)
    given = arguments.parse_args()
    jobs, rounds = (2_000, 2) if given.quick else (given.jobs, given.rounds)
    before = machine()
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder:
        found = [measured(name, jobs, rounds, Path(folder)) for name in given.engine or ENGINES]
    measurements = list(chain.from_iterable(found))
    show("Limits", measurements)
    write(given.json, before, measurements)


if __name__ == "__main__":
    main()
