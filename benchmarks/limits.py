"""What limits cost: a drain under a global one and one by key, beside the same without: `make bench-limits`.

The jobs have one of a thousand keys each. One handle completes the last hundred and claims the next hundred
in one call. Neither limit is ever reached for long: what is measured is the counting. Runs with and without
limits take turns, and the median of the rounds counts.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.figures import Figure, at_least, machine, parser, show, write
from benchmarks.places import settled
from forebay.domain.gate import gates_of
from forebay.domain.job import Job, NewJob, QueueName, WorkerId
from forebay.domain.limits import GLOBAL, Limit, key_scope
from forebay.stores.opening import open_engine
from forebay.stores.protocol import Store, Want
from tests.urls import ENGINES, lent_url

QUEUE: Final = QueueName("default")
WORKER: Final = WorkerId("bench")
KEYS: Final = 1_000
BATCH: Final = 100
GOAL: Final = 0.7
GATES: Final = gates_of(["send"], 1)


def drained(store: Store, jobs: int) -> float:
    """Jobs per second, from the first claim to the last completion."""
    new = [
        NewJob(task="send", payload=b"x" * 109, limit_keys={"tenant": f"t{n % KEYS}"}) for n in range(jobs)
    ]
    for first in range(0, jobs, 1_000):
        store.insert(new[first : first + 1_000])
    began, done, left = time.perf_counter(), list[Job](), jobs
    while left:
        answer = store.exchange(WORKER, settled(done), [Want(QUEUE, BATCH, gates=GATES)], room=BATCH)
        left -= len(answer.settled)
        done = list(answer.jobs)
    return jobs / (time.perf_counter() - began)


def measured(name: str, jobs: int, rounds: int, folder: Path) -> Figure:
    with lent_url(name, folder) as url:
        store = open_engine(url).store()
        pairs: list[tuple[float, float]] = []
        for _ in range(rounds):
            store.save_limit(Limit(scope=GLOBAL, concurrency=500))
            store.save_limit(Limit(scope=key_scope("tenant"), concurrency=10))
            limited = drained(store, jobs)
            store.drop_limit(GLOBAL)
            store.drop_limit(key_scope("tenant"))
            pairs.append((limited, drained(store, jobs)))
        store.close()
    ratio = median(one / other for one, other in pairs)
    return Figure(
        measure=f"{name}: drain under limits",
        ours=median(pair[0] for pair in pairs),
        unit="/s",
        beside=f"{median(pair[1] for pair in pairs):,.0f}/s without",
        ratio=ratio,
        goals=(at_least(ratio, GOAL, " of it"),),
        rounds=tuple(pair[0] for pair in pairs),
        beside_rounds=tuple(pair[1] for pair in pairs),
    )


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--engine", choices=ENGINES, action="append")
    arguments.add_argument("--jobs", type=int, default=10_000)
    given = arguments.parse_args()
    jobs, rounds = (2_000, 2) if given.quick else (given.jobs, given.rounds)
    before = machine()
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder:
        figures = [measured(name, jobs, rounds, Path(folder)) for name in given.engine or ENGINES]
    show("Limits", figures)
    write(given.json, before, figures)


if __name__ == "__main__":
    main()
