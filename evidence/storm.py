"""What hits the programs of a soak: signals, a server that goes away, a network that fails."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from threading import Timer
from typing import Final

from benchmarks import outages
from benchmarks.outages import Outages, Server
from evidence.crew import Post, send
from evidence.load import LEASE_MS
from evidence.proxy import Proxy

SIGNALS: Final = ("SIGKILL", "SIGSTOP", "SIGTERM")
# The supervisor alone is stopped for longer than a lease: its worker processes renew for themselves.
SUPERVISOR: Final = "SUPERVISOR"
SERVER_EVERY: Final = 5
SHORTEST_SECONDS: Final = 0.1
LONGEST_SECONDS: Final = 6.0
DELAY_SECONDS: Final = 0.5
BYTES_PER_SECOND: Final = 20_000.0
NETWORK: Final[dict[str, Callable[[Proxy], object]]] = {
    "CUT": Proxy.cut,
    "REFUSE": Proxy.refuse,
    "HOLD": Proxy.hold,
    "SWALLOW": Proxy.swallow,
    "FORGET": Proxy.forget,
    "DOUBLE": Proxy.double,
    "DELAY": lambda proxy: proxy.delay(DELAY_SECONDS),
    "THROTTLE": lambda proxy: proxy.throttle(BYTES_PER_SECOND),
}


class Storm:
    """Hits processes, their networks and the server, and lets those that were stopped go on after a while."""

    def __init__(self, dice: random.Random, server: Server | None, proxies: list[Proxy]) -> None:
        self._dice = dice
        self._outages = None if server is None else Outages(server, dice)
        self.proxies = proxies
        # Workers come first: while a server is away there is little else to hit.
        signals = (*SIGNALS, SUPERVISOR)
        self._often = (*signals, *signals, *NETWORK) if proxies else signals
        self._kinds = self._often if server is None else (*self._often, *outages.KINDS)
        self._bag: list[str] = []
        self._bags = 0
        self._stopped: list[tuple[Timer, int]] = []
        self._heal_at: dict[Proxy, float] = {}
        self._next = time.monotonic()
        self._kinds_played: set[str] = set()
        self.hits: Counter[str] = Counter()

    def blow(self, posts: list[Post]) -> None:
        """Do what is due."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._dice.uniform(0.2, 2.0)
            self._hit(posts)
        self._heal(now)
        if self._outages is not None:
            self._outages.look()

    def _hit(self, posts: list[Post]) -> None:
        if not self._bag:  # each kind comes as often as the others, also in a short run
            # Later the server is mostly left alone: the more jobs it keeps, the longer it takes to come back.
            kinds = self._often if self._bags % SERVER_EVERY else self._kinds
            self._bag = self._dice.sample(kinds, len(kinds))
            self._bags += 1
        kind = self._bag.pop()
        self._kinds_played.add(kind)
        if kind in SIGNALS:
            self._hit_process(self._dice.choice(posts), signal.Signals[kind])
        elif kind == SUPERVISOR:
            self._stop_supervisor(self._dice.choice([post for post in posts if post.is_supervised]))
        elif kind in NETWORK:
            self._hit_network(self._dice.choice(self.proxies), kind)
        elif self._outages is not None:
            self.hits[f"{kind} server"] += 1
            self._outages.strike(kind)

    def _hit_process(self, post: Post, number: signal.Signals) -> None:
        target = self._dice.choice(post.processes())
        kind = "program" if target == post.popen.pid else "child"
        self.hits[f"{number.name} {kind}"] += 1
        send(target, number)
        if number is signal.SIGSTOP:
            self._let_go_on(target, self._dice.uniform(SHORTEST_SECONDS, LONGEST_SECONDS))

    def _stop_supervisor(self, post: Post) -> None:
        self.hits["SIGSTOP supervisor"] += 1
        send(post.popen.pid, signal.SIGSTOP)
        self._let_go_on(post.popen.pid, self._dice.uniform(1.5, 2.5) * LEASE_MS / 1_000)

    def _let_go_on(self, pid: int, seconds: float) -> None:
        # On a thread of its own: who is stopped may hold the store's lock, and we may be waiting for that.
        timer = Timer(seconds, send, (pid, signal.SIGCONT))
        timer.daemon = True
        timer.start()
        self._stopped = [(other, of) for other, of in self._stopped if other.is_alive()]
        self._stopped.append((timer, pid))

    def _hit_network(self, proxy: Proxy, kind: str) -> None:
        """One thing after the other may be wrong with a network until it heals."""
        self.hits[f"{kind} network"] += 1
        NETWORK[kind](proxy)
        seconds = self._dice.uniform(SHORTEST_SECONDS, LONGEST_SECONDS)
        self._heal_at.setdefault(proxy, time.monotonic() + seconds)

    def _heal(self, now: float) -> None:
        for proxy in [one for one, at in self._heal_at.items() if at <= now]:
            del self._heal_at[proxy]
            proxy.heal()

    @property
    def is_whole(self) -> bool:
        """Each kind of hit was played. A server that is long away can keep us from it for a while."""
        return self._kinds_played >= set(self._kinds)

    def calm(self) -> None:
        """No process stays stopped, every network is whole, and the server is there."""
        self._heal(float("inf"))
        if self._outages is not None:
            self._outages.look(is_over=True)
        for timer, pid in self._stopped:
            if timer.is_alive():
                timer.cancel()
                send(pid, signal.SIGCONT)
