"""What a handle knows of the hottest part of the order, which Redis holds; PostgreSQL decides.

Where there is a backlog, each claim is named other places of it, so that many workers do not walk over what
the others have taken. A handle believes what it is told for a second, then it looks by itself; and it goes on
to look by itself as long as it finds too little, or jobs that Redis should have known. So a job of which
Redis knows nothing (it came in a caller's transaction, or while Redis was away, or whoever was told of it has
died) waits for a second and not longer. Where there is no backlog nobody asks Redis: the look of the store's
own finds all there is in one trip.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from time import monotonic
from typing import Final, NamedTuple

import msgspec

from forebay.domain.job import Job, QueueName
from forebay.stores.hybrid.keys import KEPT_MS
from forebay.stores.hybrid.link import Link
from forebay.stores.postgres.cursor import HEAD, Place

LOOK_SECONDS: Final = 1.0
# For so long jobs may be missing here before the whole order is forgotten and built anew.
DOUBT_SECONDS: Final = 2.0
FORGOTTEN_MS: Final = 5_000
BATCH: Final = 2_000
SENT_AT_ONCE: Final = 1_000  # Redis does nothing else while it takes them in
NOTHING, ALL = "-", "+"  # how far the order is known

_pack: Final = msgspec.msgpack.Encoder().encode


class Gap(NamedTuple):
    """How far a queue's order is known, and how many places more there is room for."""

    queue: QueueName
    bound: str
    room: int

    @property
    def after(self) -> Place:
        """The last place that is known."""
        if self.bound == NOTHING:
            return HEAD.rank, HEAD.seq
        rank, _, seq = self.bound.partition(":")
        return int(rank), int(seq)


class HotOrder:
    """One handle's part in it. With `is_eager`, for tests, it believes for ever what it is told, and asks
    even where there is no backlog."""

    def __init__(self, link: Link, most: int, *, is_eager: bool = False) -> None:
        self._link = link
        self._most = most
        self.is_eager: bool = is_eager
        self._look_at: dict[QueueName, float] = {}
        self._asked_at: dict[QueueName, float] = {}
        self._doubts: dict[QueueName, float] = {}
        self._gaps: dict[QueueName, Gap] = {}
        self._new: dict[QueueName, dict[int, list[int]]] = {}
        self._missed: set[QueueName] = set()  # while Redis was away, jobs came into these
        self._claims = count()
        self._name = os.urandom(6).hex()
        self._claim = ""

    # What the store asks and tells: see `stores.postgres.beside`

    def named(self, queue: QueueName, most: int) -> Sequence[Place]:
        if not self.is_up or not self._may_believe(queue):
            return ()
        self._claim = f"{self._name}:{next(self._claims)}"
        least = 1 if self.is_eager else most
        answer = self._link.ask("take", queue, most, least, self._claim, KEPT_MS)
        if answer is None:
            return ()
        self._asked_at[queue] = monotonic()
        bound, left, *flat = answer
        self._note_gap(queue, bound.decode(), left)
        return [(int(float(flat[i + 1])), int(flat[i])) for i in range(0, len(flat), 2)]

    def tried(self, queue: QueueName, places: Sequence[Place], *, is_over: bool) -> None:
        if is_over:
            self._link.send("left", queue, self._claim, b"")
        else:
            # The pop is undone. Where that fails too, the store's own look finds them.
            self._link.send("add", queue, self._most, _pack(_grouped(places)), b"", self._claim)

    def looked(self, queue: QueueName, places: Sequence[Place], *, is_enough: bool) -> None:
        is_tested = bool(places) and self._is_asked_for(queue)
        # Until it is known whether Redis knew these, the store goes on by itself.
        self._look_at[queue] = monotonic() + LOOK_SECONDS if is_enough and not is_tested else 0.0
        if is_tested:
            then = partial(self._judge, queue, is_enough)
            self._link.send("left", queue, b"", _pack(_grouped(places)), then=then)

    def gone(self, jobs: Sequence[Job]) -> None:
        by_queue: dict[QueueName, list[Place]] = {}
        for job in jobs:
            by_queue.setdefault(job.queue, []).append((job.rank, job.seq))
        for queue, places in by_queue.items():
            if self._is_asked_for(queue):
                self._link.send("left", queue, b"", _pack(_grouped(places)))

    def came(self, queue: QueueName, rank: int, seqs: Sequence[int]) -> None:
        self._new.setdefault(queue, {}).setdefault(rank, []).extend(seqs)

    # The rest

    @property
    def is_up(self) -> bool:
        """Whether Redis can be asked now. Where it was away, orders into which jobs came meanwhile are
        forgotten: with holes they would name the younger jobs first."""
        if not self._link.is_up:
            return False
        if self._missed:
            self._missed = {queue for queue in self._missed if not self._link.send("forget", queue, 1)}
        return not self._missed

    def missed(self, queues: Iterable[QueueName]) -> None:
        """Jobs have come into these of which Redis will not hear."""
        self._missed.update(queues)

    def flush(self, *, tell: bool) -> bool:
        """Send what has come, and a hint to those who listen; whether the hint was sent."""
        new, self._new = self._new, {}
        is_told = not tell
        for queue, by_rank in new.items():
            if not self.is_up:
                self._missed.add(queue)
                continue
            for groups in _parts(by_rank):
                word = b"" if is_told else self._link.channel
                is_sent = self._link.send("add", queue, self._most, _pack(groups), word, b"")
                is_told = is_told or is_sent
                if not is_sent:
                    self._missed.add(queue)
        return is_told or self._link.publish()

    def is_wanted_first(self, queue: QueueName) -> bool:
        """Whether an order shall be here before it is first asked for."""
        return self.is_eager and queue not in self._asked_at

    def take_gap(self) -> Gap | None:
        """A queue whose order has room here for more of it."""
        return self._gaps.popitem()[1] if self._gaps else None

    def fill(self, gap: Gap, places: Sequence[Place], *, is_all: bool) -> None:
        """The part of the order behind what is known."""
        rank, seq = places[-1] if places else gap.after
        bound = ALL if is_all else f"{rank}:{seq}"
        self._link.send("fill", gap.queue, self._most, gap.bound, bound, _pack(_grouped(places)), KEPT_MS)

    def _may_believe(self, queue: QueueName) -> bool:
        return self.is_eager or monotonic() < self._look_at.get(queue, 0.0)

    def _is_asked_for(self, queue: QueueName) -> bool:
        """Whether this order is likely to be there: one that nobody asks for is not kept."""
        return queue in self._asked_at and monotonic() - self._asked_at[queue] < KEPT_MS / 1_000

    def _note_gap(self, queue: QueueName, bound: str, left: int) -> None:
        room = self._most - left
        if bound != ALL and room >= min(BATCH, max(1, self._most // 2)):
            self._gaps[queue] = Gap(queue, bound, min(room, BATCH))

    def _judge(self, queue: QueueName, is_enough: bool, missing: int) -> None:
        """What a look of the store's own has found beside what Redis knew. As long as there is any, the next
        look is the store's own too: else many jobs that came unseen would wait for a second each."""
        now = monotonic()
        if not missing:
            self._doubts.pop(queue, None)
            self._look_at[queue] = now + LOOK_SECONDS if is_enough else 0.0
            return
        self._look_at[queue] = 0.0
        if now - self._doubts.setdefault(queue, now) > DOUBT_SECONDS:
            self._doubts.pop(queue)
            self._link.send("forget", queue, FORGOTTEN_MS)


def _grouped(places: Iterable[Place]) -> list[tuple[int, list[int]]]:
    by_rank: dict[int, list[int]] = {}
    for rank, seq in places:
        by_rank.setdefault(rank, []).append(seq)
    return list(by_rank.items())


def _parts(by_rank: Mapping[int, Sequence[int]]) -> Iterable[list[tuple[int, list[int]]]]:
    """Groups of places in parts that Redis takes in without a pause."""
    flat = [(rank, seq) for rank, seqs in by_rank.items() for seq in seqs]
    return (_grouped(flat[i : i + SENT_AT_ONCE]) for i in range(0, len(flat), SENT_AT_ONCE))
