"""What a program does with one system, in the interpreter of that system: drive.py DRIVER ACTION [NUMBER ...]

A driver is a module below `drivers`. It has `enqueue(argument)` and, as far as the system can do that,
`setup()` (make tables), `open()` (connect), `bulk(arguments)`, `fill(jobs)` (a backlog, by any short cut),
`load(arguments)` (where `bulk` is not what workers drain), `probe(argument)` (where an enqueue alone does not
wake a worker), `mixed(arguments)` (half of them for a blocking task, half for a coroutine) and
`queues(arguments)` (spread over eight queues); `unfinished()` counts jobs that are not final. They are
functions, or all of those that talk to the store are coroutine functions. The last line printed is JSON.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.compare.notes import NAME, argument, noted, now

BULK: Final = 1_000
EVERY_SECONDS: Final = 0.02
DEADLINE_SECONDS: Final = 60.0
SIZES: Final = (100, 1_000, 8_000, 64_000)


class Sender:
    """Calls the functions of a driver, on one event loop where they are coroutine functions."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self._runner = asyncio.Runner(loop_factory=_new_loop) if self._is_async("enqueue") else None
        if hasattr(driver, "open"):
            self.each(lambda _: driver.open(), [None])

    def _is_async(self, name: str) -> bool:
        return inspect.iscoroutinefunction(getattr(self.driver, name))

    def each(self, call: Callable[[Any], Any], items: Iterable[Any]) -> tuple[int, float]:
        """Call it for each item; answers how many, and in how many seconds."""
        if self._runner is not None:
            return self._runner.run(_awaited(call, items))
        count, began = 0, time.perf_counter()
        for item in items:
            call(item)
            count += 1
        return count, time.perf_counter() - began

    def load(self, arguments: Sequence[dict[str, Any]]) -> None:
        """Send them in the quickest way the system has."""
        many = getattr(self.driver, "load", None) or getattr(self.driver, "bulk", None)
        if many:
            self.each(many, chunks(arguments))
        else:
            self.each(self.driver.enqueue, arguments)


async def _awaited(call: Callable[[Any], Any], items: Iterable[Any]) -> tuple[int, float]:
    count, began = 0, time.perf_counter()
    for item in items:
        await call(item)
        count += 1
    return count, time.perf_counter() - began


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - peers that gain from it bring it along
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def chunks(arguments: Sequence[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    for start in range(0, len(arguments), BULK):
        yield arguments[start : start + BULK]


# Actions


def one_by_one(sender: Sender, seconds: float) -> dict[str, float]:
    sender.each(sender.driver.enqueue, [argument()])  # warm
    cpu = time.process_time()
    count, took = sender.each(sender.driver.enqueue, for_a_while(seconds))
    return {"per_second": count / took, "count": count, "cpu_seconds": time.process_time() - cpu}


def in_bulk(sender: Sender, seconds: float) -> dict[str, float]:
    chunk = [argument(number) for number in range(BULK)]
    sender.each(sender.driver.bulk, [chunk])  # warm
    ends = time.perf_counter() + seconds
    count, took = sender.each(
        sender.driver.bulk, iter(lambda: chunk if time.perf_counter() < ends else None, None)
    )
    return {"per_second": BULK * count / took}


def for_a_while(seconds: float) -> Iterator[dict[str, Any]]:
    number, ends = 0, time.perf_counter() + seconds
    while time.perf_counter() < ends:
        yield argument(number)
        number += 1


def load(sender: Sender, jobs: float) -> dict[str, float]:
    sender.load([argument(number) for number in range(round(jobs))])
    return {}


def fill(sender: Sender, jobs: float) -> dict[str, float]:
    sender.each(lambda _: sender.driver.fill(round(jobs)), [None])
    return {}


def sizes(sender: Sender, jobs: float) -> dict[str, float]:
    """Arguments of 100 bytes to 64 kB in turn, one by one."""
    made = [argument(number, size=SIZES[number % len(SIZES)]) for number in range(round(jobs))]
    count, took = sender.each(sender.driver.enqueue, made)
    return {"per_second": count / took}


def mixed(sender: Sender, jobs: float) -> dict[str, float]:
    sender.each(sender.driver.mixed, chunks([argument(number) for number in range(round(jobs))]))
    return {}


def queues(sender: Sender, jobs: float) -> dict[str, float]:
    sender.each(sender.driver.queues, chunks([argument(number) for number in range(round(jobs))]))
    return {}


def count(sender: Sender) -> dict[str, float]:
    """Print the number of unfinished jobs for each line of input, to its end."""
    for _ in sys.stdin:
        print(sender.driver.unfinished(), flush=True)
    return {}


def probe(sender: Sender, seconds: float) -> dict[str, float]:
    """One job every 20 ms, after one whose delay is not recorded: its sender connects first."""
    send = getattr(sender.driver, "probe", sender.driver.enqueue)
    sender.each(send, [argument()])
    count, _ = sender.each(send, paced(seconds))
    return {"sent": count + 1}


def paced(seconds: float) -> Iterator[dict[str, Any]]:
    next_at = time.monotonic()
    for number in range(round(seconds / EVERY_SECONDS)):
        yield argument(number, now())
        next_at += EVERY_SECONDS
        time.sleep(max(0.001, next_at - time.monotonic()))


def waves(sender: Sender, jobs: float, count: float, gap_seconds: float) -> dict[str, float]:
    """Bursts with idle gaps; jobs a second from the first enqueue of a burst to the start of its last job."""
    folder, burst = Path(os.environ[NAME]), [argument(number) for number in range(round(jobs))]
    seconds = []
    for _ in range(round(count)):
        time.sleep(gap_seconds)
        wanted, began = noted(folder).jobs + len(burst), now()
        sender.load(burst)
        ends = time.monotonic() + DEADLINE_SECONDS
        while noted(folder).jobs < wanted and time.monotonic() < ends:
            time.sleep(0.001)
        seconds.append(noted(folder).last - began)
    return {"per_second": len(burst) * len(seconds) / sum(seconds)}


ACTIONS: Final[dict[str, Callable[..., dict[str, float]]]] = {
    action.__name__: action
    for action in (one_by_one, in_bulk, load, fill, sizes, mixed, queues, count, probe, waves)
}


def main() -> None:
    name, action, *numbers = sys.argv[1:]
    driver = importlib.import_module(f"benchmarks.compare.drivers.{name}")
    if action == "setup":
        getattr(driver, "setup", lambda: None)()
        answer: dict[str, float] = {}
    else:
        answer = ACTIONS[action](Sender(driver), *map(float, numbers))
    print(json.dumps(answer), flush=True)
    # Connections and threads of a client are of no use any more, and some complain when they are closed.
    os._exit(0)


if __name__ == "__main__":
    main()
