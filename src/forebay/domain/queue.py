"""A queue: a name that jobs wait under, with its settings and its state."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from forebay.domain.fairness import check_weights
from forebay.domain.job import DAY_MS, MAX_PRIORITY, MIN_LEASE_MS, MIN_PRIORITY, QueueName
from forebay.domain.rank import STRICT_AGING_MS, Scoring
from forebay.errors import ConfigError, InvalidJob

MAX_LENGTH: Final = 1_000_000_000
MAX_RATE: Final = 1_000_000
MAX_PROMOTED: Final = 10_000


class QueueState(StrEnum):
    """What a queue does with jobs."""

    ACTIVE = "active"  # takes them and gives them out
    PAUSED = "paused"  # takes them, gives none out
    DRAINING = "draining"  # takes none, gives out what it has
    DROPPED = "dropped"  # takes none, gives none out; what is left goes to the dead letters


class QueueMode(StrEnum):
    """Ready-made scoring; single settings given beside it win."""

    AGING = "aging"
    STRICT = "strict"
    FIFO = "fifo"


_MODES: Final[dict[QueueMode, dict[str, object]]] = {
    QueueMode.AGING: {},
    QueueMode.STRICT: {
        "aging_ms": STRICT_AGING_MS,
        "max_aging_bonus": None,
        "retry_penalty": 0.0,
        "deadline_weight": 0.0,
    },
    QueueMode.FIFO: {"max_aging_bonus": None, "retry_penalty": 0.0, "deadline_weight": 0.0},
}


class Stagger(NamedTuple):
    """So many jobs become pending, and no others for so long."""

    jobs: int
    every_ms: int


def stagger_task_name(queue: str) -> str:
    """The duty that is taken by whoever releases jobs of a staggered queue."""
    return f"promote {queue}"


def _check_integer(name: str, value: int, minimum: int, maximum: int) -> None:
    if type(value) is not int or not minimum <= value <= maximum:
        raise ConfigError(f"{name} must be a whole number from {minimum} to {maximum}, not {value!r}")


def _check_points(name: str, value: float) -> None:
    if not math.isfinite(value) or not 0 <= value <= 1_000:  # noqa: PLR2004 - keeps rank below 2**53
        raise ConfigError(f"{name} must be a number from 0 to 1000, not {value!r}")


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be set on a queue, with the defaults of one that nobody has configured.

    `aging_ms` is the wait that is worth one point of priority; None for `max_aging_bonus` lets age
    count without end. Final jobs are kept for `keep_finished_ms` and dead ones for `keep_dead_ms`,
    0 meaning until somebody purges them; with `archive` a line about each stays for `keep_archive_ms`
    (0: for ever). `enqueue_rate` is how many new jobs a second it takes, `client_rate` how many of one
    client; after a pause a burst may come together, twice the rate unless said otherwise.
    `fairness_weights` says which shares count for more than one (see `domain/fairness.py`).
    Of jobs that come due together no more than `promote_per_second` become pending.
    """

    mode: QueueMode = QueueMode.AGING
    weight: int = 1
    lease_ms: int = 30_000
    max_length: int | None = None
    default_priority: int = 0
    min_priority: int = MIN_PRIORITY
    max_priority: int = MAX_PRIORITY
    aging_ms: int = 3_600_000
    max_aging_bonus: float | None = 50.0
    retry_penalty: float = 2.0
    deadline_weight: float = 30.0
    deadline_horizon_ms: int = 3_600_000
    keep_finished_ms: int = 7 * DAY_MS
    keep_dead_ms: int = 30 * DAY_MS
    archive: bool = False
    keep_archive_ms: int = 90 * DAY_MS
    enqueue_rate: int | None = None
    enqueue_burst: int | None = None
    client_rate: int | None = None
    client_burst: int | None = None
    fairness_weights: dict[str, int] = {}
    promote_per_second: int | None = None

    def __post_init__(self) -> None:
        _check_integer("weight", self.weight, 1, 1_000)
        _check_integer("lease_ms", self.lease_ms, MIN_LEASE_MS, DAY_MS)
        if self.max_length is not None:
            _check_integer("max_length", self.max_length, 1, MAX_LENGTH)
        self._check_priorities()
        self._check_scoring()
        for name in ("keep_finished_ms", "keep_dead_ms", "keep_archive_ms"):
            _check_integer(name, getattr(self, name), 0, 100 * 366 * DAY_MS)
        self._check_rate("enqueue")
        self._check_rate("client")
        check_weights(self.fairness_weights)
        if self.promote_per_second is not None:
            _check_integer("promote_per_second", self.promote_per_second, 1, MAX_PROMOTED)

    def _check_rate(self, kind: str) -> None:
        rate, burst = getattr(self, f"{kind}_rate"), getattr(self, f"{kind}_burst")
        if rate is not None:
            _check_integer(f"{kind}_rate", rate, 1, MAX_RATE)
        if burst is not None:
            if rate is None:
                raise ConfigError(f"{kind}_burst goes with {kind}_rate")
            # So that a bucket which nobody has used for a while is full, and can be forgotten.
            _check_integer(f"{kind}_burst", burst, 1, min(MAX_RATE, 3_600 * rate))

    def _check_priorities(self) -> None:
        _check_integer("min_priority", self.min_priority, MIN_PRIORITY, MAX_PRIORITY)
        _check_integer("max_priority", self.max_priority, self.min_priority, MAX_PRIORITY)
        _check_integer("default_priority", self.default_priority, self.min_priority, self.max_priority)

    def _check_scoring(self) -> None:
        _check_integer("aging_ms", self.aging_ms, 1, STRICT_AGING_MS)
        _check_integer("deadline_horizon_ms", self.deadline_horizon_ms, 8, 366 * DAY_MS)
        _check_points("retry_penalty", self.retry_penalty)
        _check_points("deadline_weight", self.deadline_weight)
        if self.max_aging_bonus is not None:
            _check_points("max_aging_bonus", self.max_aging_bonus)

    @property
    def has_rates(self) -> bool:
        """Whether it takes new jobs at some rate only."""
        return self.enqueue_rate is not None or self.client_rate is not None

    @property
    def scoring(self) -> Scoring:
        """The numbers that rank needs, in thousandths of a point."""
        bonus = self.max_aging_bonus
        return Scoring(
            aging_ms=self.aging_ms,
            cap=None if bonus is None else round(bonus * 1_000),
            retry_penalty=round(self.retry_penalty * 1_000),
            deadline_weight=round(self.deadline_weight * 1_000),
            deadline_horizon_ms=self.deadline_horizon_ms,
        )

    @property
    def stagger(self) -> Stagger | None:
        """How jobs that come due together are released, where that is staggered: ten times in a second, or
        less often where that would be less than one job."""
        rate = self.promote_per_second
        if rate is None:
            return None
        jobs = max(1, rate // 10)
        return Stagger(jobs, -(-1_000 * jobs // rate))

    def with_changes(self, changes: Mapping[str, object]) -> QueueSettings:
        """These settings with some replaced; raises ConfigError naming what is wrong.

        Setting `mode` also sets what the mode stands for; single settings given beside it win.
        """
        try:
            wanted = dict(changes)
            if "mode" in wanted:
                mode = QueueMode(str(wanted["mode"]))
                # A mode is a fresh start: what an earlier mode had set must not linger.
                wanted = {**_scoring_defaults(), **_MODES[mode], **wanted, "mode": mode}
            for kind in ("enqueue", "client"):
                if wanted.get(f"{kind}_rate", 0) is None:
                    wanted.setdefault(f"{kind}_burst", None)  # it goes with its rate
            return msgspec.convert({**msgspec.to_builtins(self), **wanted}, QueueSettings)
        except (msgspec.ValidationError, ValueError, TypeError) as exc:
            raise ConfigError(f"queue settings: {exc}") from exc


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A stored queue. `reordering` says that a change of scoring has not reached all its jobs yet."""

    name: QueueName
    state: QueueState = QueueState.ACTIVE
    settings: QueueSettings = QueueSettings()
    scoring_version: int = 1
    is_rescoring: bool = False
    created_at: int = 0
    updated_at: int = 0

    def priority_of(self, wanted: int | None) -> int:
        """The priority of a job in this queue, by default the queue's; raises InvalidJob out of its range."""
        least, most = self.settings.min_priority, self.settings.max_priority
        priority = self.settings.default_priority if wanted is None else wanted
        if not least <= priority <= most:
            raise InvalidJob(
                f"priority {priority} is outside the range of queue {self.name}: {least} to {most}",
                field="priority",
            )
        return priority

    def objection_to_move(self, length: Callable[[], int] | None) -> str:
        """Why a job of another queue cannot be moved here; empty if it can. `length` counts the jobs that are
        pending here, where it would be one of them."""
        if self.state in (QueueState.DRAINING, QueueState.DROPPED):
            return f"queue {self.name} is {self.state}"
        limit = self.settings.max_length
        if length is not None and limit is not None and length() >= limit:
            return f"queue {self.name} is full: {limit} pending jobs are allowed"
        return ""

    def with_settings(self, settings: QueueSettings, state: QueueState | None, now: int) -> Queue:
        """This queue with new settings; a change of scoring raises `scoring_version`."""
        rescored = settings.scoring != self.settings.scoring
        return replace(
            self,
            settings=settings,
            state=state or self.state,
            scoring_version=self.scoring_version + rescored,
            is_rescoring=self.is_rescoring or rescored,
            updated_at=now,
        )


def _scoring_defaults() -> dict[str, object]:
    plain = QueueSettings()
    return {
        "aging_ms": plain.aging_ms,
        "max_aging_bonus": plain.max_aging_bonus,
        "retry_penalty": plain.retry_penalty,
        "deadline_weight": plain.deadline_weight,
    }
