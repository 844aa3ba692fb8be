"""Queue: a name that jobs wait under, with its settings and its state."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from forebay.domain.fairness import check_weights
from forebay.domain.job import DAY_MS, MIN_LEASE_MS, QueueName
from forebay.domain.job_validation import MAX_PRIORITY, MIN_PRIORITY
from forebay.domain.rank import STRICT_AGING_MS, Scoring
from forebay.errors import ConfigError, InvalidJob

MAX_LENGTH: Final = 1_000_000_000
MAX_RATE: Final = 1_000_000
MAX_PROMOTED: Final = 10_000


class QueueState(StrEnum):
    """State of a queue."""

    ACTIVE = "active"  # accepts jobs, and they can be claimed
    PAUSED = "paused"  # accepts jobs, and none can be claimed
    DRAINING = "draining"  # accepts none; the waiting ones can be claimed
    DROPPED = "dropped"  # accepts none, and none can be claimed; waiting ones go to the dead letters


class QueueMode(StrEnum):
    """Preset of scoring settings; single settings given with it take precedence."""

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
    """Bound on promotion: so many jobs become pending, and no others for so long."""

    jobs: int
    every_ms: int


def stagger_task_name(queue: str) -> str:
    """Return the name of the maintenance task that releases jobs of a staggered queue."""
    return f"promote {queue}"


def _check_integer(name: str, value: int, minimum: int, maximum: int) -> None:
    if type(value) is not int or not minimum <= value <= maximum:
        raise ConfigError(f"{name} must be a whole number from {minimum} to {maximum}, not {value!r}")


def _check_points(name: str, value: float) -> None:
    if not math.isfinite(value) or not 0 <= value <= 1_000:  # noqa: PLR2004 - keeps rank below 2**53
        raise ConfigError(f"{name} must be a number from 0 to 1000, not {value!r}")


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a queue, with the defaults.

    `aging_ms` is the wait that is worth one point of priority; None for `max_aging_bonus` is no bound on the
    age bonus. Final jobs are kept for `keep_finished_ms` and dead ones for `keep_dead_ms`; 0 means until they
    are purged. With `archive` a line about each stays for `keep_archive_ms` (0: for ever). `enqueue_rate` is
    how many new jobs a second the queue takes, `client_rate` how many of one client; after a pause a burst
    may come together, by default twice the rate. `fairness_weights` are the weights of fairness keys other
    than 1 (see `domain/fairness.py`). At most `promote_per_second` of the jobs that are due together become
    pending.
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
            # So that an unused bucket is full after a while, and can be removed.
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
        """Return whether it limits the rate of new jobs."""
        return self.enqueue_rate is not None or self.client_rate is not None

    @property
    def scoring(self) -> Scoring:
        """Return the settings that ranks depend on, in thousandths of a point."""
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
        """Return the bound on promotion in a staggered queue: ten batches a second, or fewer where that
        would be less than one job."""
        rate = self.promote_per_second
        if rate is None:
            return None
        jobs = max(1, rate // 10)
        return Stagger(jobs, -(-1_000 * jobs // rate))

    def with_changes(self, changes: Mapping[str, object]) -> QueueSettings:
        """Return these settings with some replaced; raise ConfigError that names the mistake.

        Setting `mode` also sets the settings of that mode; single settings given with it take precedence.
        """
        try:
            values = dict(changes)
            if "mode" in values:
                mode = QueueMode(str(values["mode"]))
                # A mode is a fresh start: settings of an earlier mode must not stay.
                values = {**_scoring_defaults(), **_MODES[mode], **values, "mode": mode}
            for kind in ("enqueue", "client"):
                if values.get(f"{kind}_rate", 0) is None:
                    values.setdefault(f"{kind}_burst", None)  # it goes with its rate
            return msgspec.convert({**msgspec.to_builtins(self), **values}, QueueSettings)
        except (msgspec.ValidationError, ValueError, TypeError) as exc:
            raise ConfigError(f"queue settings: {exc}") from exc


# Described before threads share it, as in `forebay.prepared_types`, which the domain does not import.
msgspec.json.Decoder(QueueSettings)


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """Stored queue. `is_rescoring` means that a change of scoring has not reached all its jobs yet."""

    name: QueueName
    state: QueueState = QueueState.ACTIVE
    settings: QueueSettings = QueueSettings()
    scoring_version: int = 1
    is_rescoring: bool = False
    created_at: int = 0
    updated_at: int = 0

    def priority_of(self, wanted: int | None) -> int:
        """Return the priority of a job in this queue, by default the queue's; raise InvalidJob out of its
        range."""
        minimum, maximum = self.settings.min_priority, self.settings.max_priority
        priority = self.settings.default_priority if wanted is None else wanted
        if not minimum <= priority <= maximum:
            raise InvalidJob(
                f"priority {priority} is outside the range of queue {self.name}: {minimum} to {maximum}",
                field="priority",
            )
        return priority

    def objection_to_move(self, length: Callable[[], int] | None) -> str:
        """Return why a job of another queue cannot be moved here; empty if it can. `length` counts the
        pending jobs here, where the job would be one of them."""
        if self.state in (QueueState.DRAINING, QueueState.DROPPED):
            return f"queue {self.name} is {self.state}"
        limit = self.settings.max_length
        if length is not None and limit is not None and length() >= limit:
            return f"queue {self.name} is full: {limit} pending jobs are allowed"
        return ""

    def with_settings(self, settings: QueueSettings, state: QueueState | None, now: int) -> Queue:
        """Return this queue with new settings; a change of scoring raises `scoring_version`."""
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
    defaults = QueueSettings()
    return {
        "aging_ms": defaults.aging_ms,
        "max_aging_bonus": defaults.max_aging_bonus,
        "retry_penalty": defaults.retry_penalty,
        "deadline_weight": defaults.deadline_weight,
    }
