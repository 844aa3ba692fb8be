"""Worker programs under a mixed load and under fire, for as long as you like: `make evidence WHAT=soak`.

Several `forebay worker` programs, one of them with a supervisor and two worker processes, run jobs on one
store: short and long ones, some that fail, are tried again, snooze, die, expire or are due later, chains and
joins, sequences, unique keys, shares, limits by number, by key and by rate, schedules by interval and by cron
line; some are cancelled or revived, whether they wait or run. What is asked for follows what gets done: where
too much waits already, nothing is added, so that a slow machine has less to do and is never behind. Meanwhile
SIGKILL, SIGSTOP with SIGCONT, and SIGTERM hit processes at random, and whatever ends is started again, as
systemd would. A server is hit too: sessions are ended, it restarts, it crashes; and all programs but one
reach it over a network (`proxy.py`) that cuts, refuses, holds, swallows, forgets, doubles, delays, throttles.

Every job writes to a log outside of the store when it starts and how it ends, and each producer writes
down what was accepted. When all has ended the history checker (`history.py`) holds that against the store; no
process, descriptor, session or lock file may be left behind, and memory, descriptors and sessions of a worker
that lives through all of it, of the server and of this program must not rise.

    python -m evidence.soak                                  5 minutes on a SQLite file
    python -m evidence.soak --engine postgres --minutes 30   on a server of its own; redis for Redis
    python -m evidence.soak --minutes 0.3 --json FILE        a small one, with its findings in a file
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.outages import ENGINES, Server, patiently, server_of_our_own, sessions_left, url_of
from evidence.account import Account, compare
from evidence.crew import POSTS, Post, allowed_with, ended_in_order, manned, manned_again
from evidence.flat import Level, Levels
from evidence.load import MODULE, Feed, make_app
from evidence.proxy import Proxy
from evidence.storm import Storm
from forebay import Forebay

PATIENCE_SECONDS: Final = 300.0
REPORT_EVERY_SECONDS: Final = 60.0


@dataclass
class Findings:
    """What was done, what has become of it, and what should not be."""

    command: str = ""
    began: str = ""
    kinds: dict[str, int] = field(default_factory=dict)
    hits: dict[str, int] = field(default_factory=dict)
    started_programs: int = 0
    refusals: int = 0
    account: Account = field(default_factory=Account)
    levels: list[Level] = field(default_factory=list)
    is_long: bool = False  # long enough for levels to mean something
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


class Soak:
    """One run."""

    def __init__(self, folder: Path, seconds: float, rate: float, server: Server | None) -> None:
        self._folder = folder
        self._seconds = seconds
        self._server = server
        self._allowed = allowed_with(is_hit=server is not None)
        self._levels = Levels(seconds)
        self._descriptors = len(os.listdir("/proc/self/fd"))
        self._dice = random.Random(1)
        self._rate = rate
        self.findings = Findings()

    def run(self) -> None:
        """Enqueue, hit, wait, compare."""
        began, findings = time.monotonic(), self.findings
        url = url_of(self._server) if self._server else f"sqlite:///{self._folder}/jobs.db"
        (self._folder / "effects.log").touch()
        (self._folder / "jobs.py").write_text(MODULE)
        with self._networks(url) as proxies, make_app(url, -1) as app:
            feed = Feed(app, self._folder, self._rate, self._dice)
            feed.begin()
            with manned(self._folder) as posts:
                self._play(feed, posts, Storm(self._dice, self._server, proxies))
                self._wait_for_all(app, posts)
                findings.problems += ended_in_order(self._folder, posts, self._allowed)
                findings.started_programs = sum(post.started for post in posts)
            findings.account = compare(app, self._folder, feed.schedule_runs)
            patiently(
                app.sweep
            )  # it writes, over a connection that may not have been used since the last hit
        findings.kinds, findings.refusals = dict(feed.kinds), feed.refusals
        findings.levels, findings.is_long = list(self._levels.levels()), self._levels.is_judged
        findings.problems += [*findings.account.problems, *self._levels.problems(), *self._left_behind()]
        findings.seconds = round(time.monotonic() - began, 1)

    @contextmanager
    def _networks(self, url: str) -> Iterator[list[Proxy]]:
        """Write down for each post how it reaches the store. The first goes straight; on a server each other
        one has a network of its own."""
        with ExitStack() as stack:
            proxies: list[Proxy] = []
            for number in range(len(POSTS)):
                there = url
                if number and self._server is not None:
                    proxies.append(Proxy(self._server.port))
                    stack.callback(proxies[-1].close)
                    there = url.replace(f":{self._server.port}", f":{proxies[-1].port}")
                (self._folder / f"url-{number}").write_text(there)
            yield proxies

    def _play(self, feed: Feed, posts: list[Post], storm: Storm) -> None:
        """Feed and hit for as long as it lasts, and until every kind of hit was played, a program was started
        again and a schedule has fired."""
        began = reported_at = time.monotonic()
        steady, *others = posts
        is_blowing = True
        while is_blowing or not feed.end():
            lasts = time.monotonic() - began
            is_whole = storm.is_whole and feed.is_whole and any(post.started > 1 for post in others)
            is_blowing = lasts < self._seconds or not is_whole
            if is_blowing:
                feed.give(lasts)
                storm.blow(others)
                pids = {"worker": steady.popen.pid, "soak": os.getpid()}
                self._levels.look(pids, self._server, feed.kinds.total(), storm.proxies)
            else:
                storm.calm()
            self._man(posts)
            if time.monotonic() - reported_at > REPORT_EVERY_SECONDS:
                reported_at = time.monotonic()
                print(
                    f"{lasts / 60:.0f} min, {feed.kinds.total():,} jobs accepted, {feed.live:,} of them live",
                    file=sys.stderr,
                    flush=True,
                )
            time.sleep(0.02)
        storm.calm()
        self.findings.hits = dict(sorted(storm.hits.items()))

    def _man(self, posts: list[Post]) -> None:
        self.findings.problems += manned_again(posts, self._allowed)

    def _wait_for_all(self, app: Forebay, posts: list[Post]) -> None:
        """Until every job is final, or nothing has ended for as long as one has patience."""
        fewest, ends = sys.maxsize, 0.0
        while True:
            # What is left of a connection is found out here.
            live = sum(counts.live for counts in patiently(app.counts).values())
            if live < fewest:
                fewest, ends = live, time.monotonic() + PATIENCE_SECONDS
            if not live or time.monotonic() > ends:
                return
            # Who was started while the server was away ends by itself, also when it has just come back.
            self._man(posts)
            time.sleep(0.1)

    def _left_behind(self) -> Iterator[str]:
        """What should be gone when all processes have left."""
        if self._server is not None and (left := sessions_left(self._server)):
            yield f"{left} sessions stay on the server"
        if (now := len(os.listdir("/proc/self/fd"))) > self._descriptors:
            yield f"there were {self._descriptors} open descriptors, and there are {now}"
        locks = [str(file.relative_to(self._folder)) for file in self._folder.rglob("*.lock*")]
        if locks:
            yield f"lock files stay: {', '.join(sorted(locks)[:5])}"


def show(findings: Findings) -> None:
    account = findings.account
    for name, counts in (
        ("asked for", findings.kinds),
        ("hits", findings.hits),
        ("final states", account.states),
        ("attempts that ended badly", account.bad_attempts),
    ):
        print(f"{name}: " + ", ".join(f"{kind} {number:,}" for kind, number in counts.items()))
    print(f"{account.accepted:,} jobs accepted, {account.schedule_runs:,} of them by schedules")
    print(f"{account.attempts:,} attempts, {findings.started_programs:,} programs started")
    print(f"{findings.refusals:,} calls found no store, {findings.seconds:,.0f} s in all\n")
    for level in findings.levels:
        words = "flat" if level.is_flat else "RISES" if findings.is_long else "warming up"
        print(
            f"  {level.name:24}{level.early:>12,.1f}{level.late:>12,.1f}  at most {level.most:,.1f}: {words}"
        )
    print(f"\n{len(findings.problems)} problems")
    for problem in findings.problems[:20]:
        print(f"  {problem}")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m evidence.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--engine", choices=ENGINES, default="sqlite", help="where the jobs are (sqlite)")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long it blows (5)")
    parser.add_argument(
        "--rate", type=float, default=40.0, help="how many jobs are enqueued each second at most (40)"
    )
    parser.add_argument("--json", type=Path, help="also write the findings to this file")
    chosen = parser.parse_args()
    own = server_of_our_own(ENGINES[chosen.engine])
    with tempfile.TemporaryDirectory(prefix="forebay-soak-") as folder, own as server:
        soak = Soak(Path(folder).resolve(), chosen.minutes * 60, chosen.rate, server)
        words = f"--engine {chosen.engine} --minutes {chosen.minutes:g} --rate {chosen.rate:g}"
        soak.findings.command, soak.findings.began = f"python -m evidence.soak {words}", time.strftime("%F")
        try:
            soak.run()
        except Exception:  # the findings are written in any case, and say what has ended the run
            soak.findings.problems.append(traceback.format_exc())
    show(soak.findings)
    if chosen.json:
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(soak.findings)) + b"\n")
    return 1 if soak.findings.problems else 0


if __name__ == "__main__":
    sys.exit(main())
