"""Claims that wait for jobs: however many clients do, one of them looks for all.

Wishes for the same jobs (queues, tasks, lease) make a group, and a look asks the store once for the whole
group. A look happens when a wish comes (unless others of its group wait in vain already), when the store
hints that something has changed, when a scheduled job is due, and once a second without a reason, because a
hint may be lost. So ten thousand idle clients of one group, who come again and again, cost no more than one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from forebay.app.codec import VERSION
from forebay.app.duty import Duty, close_duties, run_due, tell_connected
from forebay.app.metrics_recorder import MetricsRecorder
from forebay.domain.gate import gates_of
from forebay.domain.job import Job, QueueName, WorkerId
from forebay.domain.outcome import Interrupted
from forebay.domain.settlement import decide
from forebay.errors import StoreError, StoreUnavailable
from forebay.service.operations.claim_bytes import payload_share, read_payloads
from forebay.service.operations.desk import Desk
from forebay.service.operations.presence import Presence
from forebay.stores.protocol import Exchange, Store, Wakeups, Want

LOOK_SECONDS: Final = 1.0  # without a hint, while somebody waits; and for the duties, always
# For stores that send one hint for several jobs: what came after the hint is found by looking again.
AGAIN_SECONDS: Final = (0.001, 0.003, 0.007, 0.015, 0.031, 0.05)
MOST_IN_A_LOOK: Final = 1_000
KINDS_REMEMBERED: Final = 1_000
KINDS_IN_A_WRITE: Final = 20  # then others who write have their turn

T = TypeVar("T")

logger: logging.Logger = logging.getLogger(__name__)


class Kind(NamedTuple):
    """What wishes of one group have in common."""

    queues: tuple[QueueName, ...]
    tasks: frozenset[str] | None = None
    lease_ms: int | None = None

    def wants(self, most: int, max_payload: int) -> list[Want]:
        gates = None if self.tasks is None else gates_of(self.tasks, VERSION)
        return [Want(queue, most, self.lease_ms, gates, max_payload) for queue in self.queues]


class Wish:
    """Somebody who waits for jobs, or only wants to know whether there are some."""

    __slots__ = ("answer", "is_patient", "most")

    def __init__(self, most: int, *, is_patient: bool) -> None:
        self.most: int = most
        self.is_patient: bool = is_patient
        self.answer: asyncio.Future[list[Job]] = asyncio.get_running_loop().create_future()

    def grant(self, jobs: list[Job]) -> None:
        if not self.answer.done():
            self.answer.set_result(jobs)

    def withdraw(self) -> list[Job]:
        """Wait no longer; what was claimed meanwhile."""
        is_granted = self.answer.done() and not self.answer.cancelled() and self.answer.exception() is None
        self.answer.cancel()
        return self.answer.result() if is_granted else []


class Group:
    """The wishes of one kind, the oldest first. `is_dry` says that the last look left somebody waiting, and
    that nothing is known to have changed since: who comes to wait now need not look."""

    __slots__ = ("due", "is_dry", "wishes")

    def __init__(self) -> None:
        self.wishes: dict[Wish, None] = {}
        self.is_dry: bool = False
        self.due: asyncio.TimerHandle | None = None

    def stop_timer(self) -> None:
        if self.due is not None:
            self.due.cancel()
            self.due = None

    @property
    def room(self) -> int:
        return min(sum(wish.most for wish in self.wishes), MOST_IN_A_LOOK)

    def share(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Give jobs to those who wait, as many as each wants; what is left, since somebody has gone."""
        given = 0
        for wish in list(self.wishes):
            mine = list(jobs[given : given + wish.most])
            given += len(mine)
            if mine or not wish.is_patient:
                del self.wishes[wish]
                wish.grant(mine)
        return jobs[given:]

    def fail(self, error: Exception) -> None:
        for wish in self.wishes:
            if not wish.answer.done():
                wish.answer.set_exception(error)
        self.wishes.clear()


class Waiting:
    """Claims for all clients of this process, under one worker id, and does the duties beside it. With the
    duties it writes the metrics that `metrics` has collected.

    The id is never said to be alive: leases are the clients', and must not end with this process.
    """

    def __init__(
        self,
        desk: Desk,
        worker: WorkerId,
        duties: Sequence[Duty],
        longest: float,
        roll: Callable[[], float],
        metrics: MetricsRecorder,
    ) -> None:
        self.worker = worker
        self.longest = longest
        self.metrics = metrics
        self.presence: Presence = Presence()
        self._desk = desk
        self._duties = duties
        self._roll = roll
        self._was_away = False
        self._groups: dict[Kind, Group] = {}
        self._hungry: dict[Kind, None] = {}
        self._fitting: dict[Kind, int] = {}  # how many large jobs the next look asks for
        self._bell = asyncio.Event()
        self._again: list[asyncio.TimerHandle] = []
        self._wakeups: Wakeups | None = None
        self._task: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._is_over = asyncio.Event()
        self._hints = 0
        self._hinted = asyncio.Event()

    def start(self) -> None:
        """Begin to listen; on the event loop."""
        loop = asyncio.get_running_loop()
        self._wakeups = self._desk.engine.wakeups()
        try:
            self._wakeups.start(lambda: _call_soon(loop, self._hear))
        except StoreError as exc:
            # A server that is started while its store is away answers 503 until it is there.
            logger.warning("no hints from the store, so jobs are looked for once a second: %s", exc)
        self._task = asyncio.create_task(self._run(), name="forebay-waiting")

    async def stop(self) -> None:
        """Answer everybody who waits with nothing, and end. Stopping twice, or before the start, is fine."""
        self.refuse()
        self._bell.set()
        try:
            if self._task is not None:
                await asyncio.wait([self._task])  # however it ends
            if self._keeping is not None:
                await asyncio.wait([self._keeping])
        finally:
            await asyncio.to_thread(close_duties, self._duties)
            if self._wakeups is not None:
                await asyncio.to_thread(self._wakeups.close)

    @property
    def is_running(self) -> bool:
        """Whether somebody looks for jobs: from the start to the stop."""
        return self._task is not None and not self._task.done()

    @property
    def is_stopped(self) -> bool:
        """Whether nobody may wait any more."""
        return self._is_stopped

    def refuse(self) -> None:
        """Let nobody wait from now on: whoever does is told that there is nothing."""
        self._is_stopped = True
        self._is_over.set()
        for timer in self._again:
            timer.cancel()
        for group in self._groups.values():
            group.stop_timer()
            for wish in group.wishes:
                wish.grant([])
            group.wishes.clear()

    async def unless_over(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Do something long; None if nobody may wait any more before it is done."""
        working = asyncio.ensure_future(work)
        ending = asyncio.ensure_future(self._is_over.wait())
        try:
            await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
            return await working if working.done() else None
        finally:
            working.cancel()
            ending.cancel()

    async def hint(self, seen: str | None) -> str:
        """A word that changes with every hint of the store, and that no other server says; who has seen the
        last one waits for the next, for as long as anybody may."""
        if seen == self._word():
            with suppress(TimeoutError):
                async with asyncio.timeout(self.longest):
                    await self.unless_over(self._hinted.wait())
        return self._word()

    def _word(self) -> str:
        return f"{self.worker}:{self._hints}"

    def _tell_hint(self) -> None:
        self._hints += 1
        self._hinted.set()
        self._hinted = asyncio.Event()

    # Wishing

    async def claim(self, kind: Kind, most: int, wait_seconds: float) -> list[Job]:
        """Up to `most` jobs; none if none comes in time. If the caller is cancelled, what was claimed for it
        goes back at once."""
        if self._is_stopped:
            return []
        wish = Wish(most, is_patient=wait_seconds > 0)
        group = self._groups.setdefault(kind, Group())
        group.wishes[wish] = None
        if not (wish.is_patient and group.is_dry):
            self._look(kind)
        try:
            # Without patience for one look, however long that takes.
            patience = min(wait_seconds, self.longest) if wish.is_patient else None
            await asyncio.wait([wish.answer], timeout=patience)
            return wish.answer.result() if wish.answer.done() else wish.withdraw()
        except asyncio.CancelledError:
            await self.give_back(wish.withdraw())
            raise
        finally:
            self._leave(kind, group, wish)

    def _leave(self, kind: Kind, group: Group, wish: Wish) -> None:
        group.wishes.pop(wish, None)
        if not group.wishes and self._groups.get(kind) is group:
            group.stop_timer()
            del self._groups[kind]

    async def give_back(self, jobs: Sequence[Job]) -> None:
        """Hand jobs back unstarted, because nobody is there to run them."""
        if not jobs:
            return
        ends = [decide(job, Interrupted(started=False), 0.0) for job in jobs]
        worker = jobs[0].worker or self.worker  # a remote worker has claimed them through this server
        try:
            await asyncio.shield(self._desk.write(lambda store: store.exchange(worker, ends)))
        except Exception as exc:  # whoever hands back has something else to say or to do
            logger.warning("jobs that nobody is there to run wait for the end of their leases: %s", exc)
        self.poke()

    # Looking

    def poke(self, queues: Set[str] | None = None) -> None:
        """There may be new jobs: in these queues, or in any."""
        for kind in self._groups:
            if queues is None or not queues.isdisjoint(kind.queues):
                self._look(kind)

    def _look(self, kind: Kind) -> None:
        if (group := self._groups.get(kind)) is not None:
            group.is_dry = False
        self._hungry[kind] = None
        self._bell.set()

    def _hear(self) -> None:
        self.poke()
        self._tell_hint()
        if self._desk.engine.features.holds_hints_back:
            # Those who listen from afar do not look again by themselves.
            asyncio.get_running_loop().call_later(AGAIN_SECONDS[-1], self._tell_hint)
        if self._desk.engine.features.holds_hints_back and self._groups:
            loop = asyncio.get_running_loop()
            for timer in self._again:
                timer.cancel()
            self._again = [loop.call_later(seconds, self.poke) for seconds in AGAIN_SECONDS]

    async def _run(self) -> None:
        duties_at = 0.0
        while not self._is_stopped:
            is_time = await self._is_time(duties_at)
            if is_time:
                # Not on the beat: servers that were started together shall not look together for ever.
                duties_at = asyncio.get_running_loop().time() + LOOK_SECONDS * (1 - self._roll() / 5)
            try:
                await self._work(with_duties=is_time)
            except Exception:
                # Everybody who claims here depends on this loop, so whatever it was costs one turn only.
                logger.exception("a look for jobs went wrong; it is tried again within a second")

    async def _work(self, *, with_duties: bool) -> None:
        if with_duties:
            self.poke()  # a hint may have been lost
        await self._turn()
        if with_duties and (self._keeping is None or self._keeping.done()):
            # Beside the looks: who waits for a job does not wait for them.
            self._keeping = asyncio.create_task(self._do_duties(), name="forebay-duties")

    async def _is_time(self, moment: float) -> bool:
        """Wait until there is a reason to look; whether it is that this time has come."""
        # Asked first: a bell that rings without a pause would never let the time-out be heard.
        if asyncio.get_running_loop().time() >= moment:
            return True
        try:
            async with asyncio.timeout_at(moment):
                await self._bell.wait()
        except TimeoutError:
            return True
        self._bell.clear()
        return False

    async def _turn(self) -> None:
        kinds = [kind for kind in self._hungry if kind in self._groups]
        self._hungry.clear()
        for first in range(0, len(kinds), KINDS_IN_A_WRITE):
            await self._look_for(kinds[first : first + KINDS_IN_A_WRITE])

    async def _look_for(self, kinds: Sequence[Kind]) -> None:
        # Some may have left while others were looked for.
        wanted = [(kind, self._room_of(kind)) for kind in kinds if kind in self._groups]
        if not wanted:
            return
        answers: Sequence[Exchange | Exception]
        try:
            answers = await self._desk.write(partial(self._exchanged, wanted))
        except Exception as exc:  # somebody waits for an answer, whatever it is
            answers = [exc] * len(wanted)
        self._count(answers)
        left: list[Job] = []
        for (kind, room), answer in zip(wanted, answers, strict=True):
            whole, rest = await self._with_payloads(kind, answer)
            left += [*rest, *self._answer(kind, room, whole)]
        await self.give_back(left)

    def _room_of(self, kind: Kind) -> int:
        return min(self._groups[kind].room, self._fitting.get(kind, MOST_IN_A_LOOK))

    async def _with_payloads(
        self, kind: Kind, answer: Exchange | Exception
    ) -> tuple[Exchange | Exception, Sequence[Job]]:
        """An answer with the payloads that were left out, and jobs that have too many bytes for it."""
        if isinstance(answer, Exception):
            return answer, ()
        ready, rest = list(answer.jobs), list[Job]()
        if not all(job.payload for job in answer.jobs):
            try:
                ready, rest = await self._desk.holding(partial(read_payloads, jobs=answer.jobs))
            except Exception as exc:  # the claim is made, and its jobs must go back
                return exc, answer.jobs
        self._remember_fitting(kind, len(ready), has_rest=bool(rest))
        return replace(answer, jobs=tuple(ready)), rest

    def _remember_fitting(self, kind: Kind, jobs: int, *, has_rest: bool) -> None:
        """Ask for fewer jobs next time where many had to go back, and for more again where none had."""
        most = jobs if has_rest else 2 * self._fitting.pop(kind, MOST_IN_A_LOOK)
        if most < MOST_IN_A_LOOK and len(self._fitting) < KINDS_REMEMBERED:
            self._fitting[kind] = most

    def _count(self, answers: Sequence[Exchange | Exception]) -> None:
        now = self._desk.clock.monotonic()
        for answer in answers:
            if isinstance(answer, Exchange):
                self.metrics.claimed(answer.jobs, now)

    def _exchanged(self, wanted: Sequence[tuple[Kind, int]], store: Store) -> list[Exchange | Exception]:
        """One exchange for each group; one that fails takes nothing away from those before it."""
        answers: list[Exchange | Exception] = []
        share = payload_share(sum(room for _, room in wanted))
        for kind, room in wanted:
            try:
                answers.append(store.exchange(self.worker, wants=kind.wants(room, share), room=room))
            except StoreUnavailable as exc:
                if not any(isinstance(answer, Exchange) and answer.jobs for answer in answers):
                    raise  # the breaker counts it
                # The others would wait for the same silence one by one, and all writers behind them.
                return answers + [exc] * (len(wanted) - len(answers))
            except Exception as exc:  # what was claimed before must reach those who wait
                answers.append(exc)
        return answers

    def _answer(self, kind: Kind, room: int, answer: Exchange | Exception) -> Sequence[Job]:
        group = self._groups.get(kind)
        if isinstance(answer, Exception):
            if group is not None:
                group.fail(answer)
            return ()
        if group is None:
            return answer.jobs
        left = group.share(answer.jobs)
        # Not if somebody has come, or rung, while this look was under way: it was not for them.
        group.is_dry = bool(group.wishes) and len(answer.jobs) < room and kind not in self._hungry
        if group.wishes and len(answer.jobs) == room:
            self._look(kind)  # more wait than one look asks for
        group.stop_timer()
        if answer.next_due_ms is not None and group.wishes:
            loop = asyncio.get_running_loop()
            group.due = loop.call_later(answer.next_due_ms / 1_000, self._look, kind)
        return left

    async def _do_duties(self) -> None:
        self.metrics.present(self.presence.take())
        try:
            # Each by itself: several are due every second, with a commit or two each, and whoever writes at
            # that moment would wait for all of them.
            for duty in self._duties:
                await self._desk.keep(partial(self._do_duty, duty))
            await self._desk.keep(self.metrics.record)
        except StoreError as exc:
            self._was_away = self._was_away or isinstance(exc, StoreUnavailable)
            logger.warning("duties are left to the next turn: %s", exc)
        except Exception:  # nobody else would hear of it
            logger.exception("duties went wrong; they are tried again within a second")

    async def write_metrics(self) -> None:
        """Write all metrics, because nothing comes any more. Not to a store that is away: a stop does not
        wait for metrics."""
        if self._task is None or self._was_away:
            return
        self.metrics.present(self.presence.take())
        try:
            await self._desk.keep(self.metrics.record_all)
        except StoreError as exc:
            logger.warning("the last metrics are not written: %s", exc)

    def _do_duty(self, duty: Duty, store: Store) -> None:
        if self._was_away:
            self._was_away = False
            tell_connected(self._duties)
        run_due(store, [duty])


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    # The loop may have been closed between the hint and here; then nobody waits any more.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)
