"""What a long run holds: memory, descriptors, sessions. Whatever leaks shows as a level that rises."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import psycopg
import redis

from benchmarks.outages import Server, ask, sessions
from evidence.proxy import Proxy
from tests.servers import Postgres

SAMPLES: Final = 400  # in a run; and no more often than once a second
JUDGED_FROM_SECONDS: Final = 240.0  # shorter ones are all warming up
# What a level may rise by: a part of it, and so much besides.
PART: Final = 0.1
BESIDES: Final = {"MB": 4.0, "descriptors": 2.0, "threads": 2.0, "sessions": 3.0, "bytes a job": 20.0}


class Level(NamedTuple):
    """Something that was looked at again and again: its middle in the second and in the last quarter."""

    name: str
    early: float
    late: float
    most: float

    @property
    def is_flat(self) -> bool:
        return self.late <= self.most


class Levels:
    """Samples of processes and of the server."""

    def __init__(self, seconds: float) -> None:
        self._every = max(1.0, seconds / SAMPLES)
        self.is_judged = seconds >= JUDGED_FROM_SECONDS
        self._next = 0.0
        self._samples: dict[str, list[float]] = defaultdict(list)

    def look(
        self, processes: dict[str, int], server: Server | None, jobs: int, proxies: Sequence[Proxy] = ()
    ) -> None:
        """Take samples if it is time: of these processes by name, and of the server if it is there. What
        proxies have open in this process is not its own: others connect, and come and go."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every
        for name, pid in processes.items():
            with suppress(OSError):
                self._sample(f"{name}, MB", memory_of(pid))
                lent = sum(proxy.sockets for proxy in proxies) if pid == os.getpid() else 0
                self._sample(f"{name}, descriptors", len(os.listdir(f"/proc/{pid}/fd")) - lent)
                self._sample(f"{name}, threads", len(os.listdir(f"/proc/{pid}/task")))
        if server is not None:
            with suppress(psycopg.Error, redis.RedisError):
                self._look_at_server(server, jobs)

    def _look_at_server(self, server: Server, jobs: int) -> None:
        self._sample("server, sessions", sessions(server))
        if isinstance(server, Postgres):
            pids = [pid for (pid,) in ask(server.url(), "select pid from pg_stat_activity")]
            with suppress(OSError):  # one has just ended
                self._sample("server, MB", sum(memory_of(pid) for pid in pids))
        elif jobs:
            with redis.Redis(port=server.port) as admin:
                # All jobs are kept for the comparison, so what may not rise is the price of each.
                self._sample("server, bytes a job", admin.info("memory")["used_memory"] / jobs)

    def _sample(self, name: str, value: float) -> None:
        self._samples[name].append(value)

    def levels(self) -> Iterator[Level]:
        for name, samples in self._samples.items():
            if len(samples) >= 8:  # two in a quarter
                quarter = len(samples) // 4
                early, late = median(samples[quarter : 2 * quarter]), median(samples[-quarter:])
                unit = name.rpartition(", ")[2]
                yield Level(name, early, late, early * (1 + PART) + BESIDES[unit])

    def problems(self) -> Iterator[str]:
        for level in self.levels():
            if self.is_judged and not level.is_flat:
                yield f"{level.name} rose from {level.early:,.1f} to {level.late:,.1f}"


def memory_of(pid: int) -> float:
    """What a process has for itself, in MB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1_024
    raise ProcessLookupError(f"process {pid} has just ended")
