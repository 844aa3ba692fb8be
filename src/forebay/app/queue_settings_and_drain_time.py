"""Queue administration of an app: settings, and the estimated drain time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, Unpack, cast

from forebay.app.client import Client
from forebay.domain.durations_and_instants import Duration, duration_ms
from forebay.domain.job import QueueName
from forebay.domain.job_validation import check_queue_name
from forebay.errors import ConfigError

if TYPE_CHECKING:
    from forebay.domain.queue import Queue

_UNIT: Final = "_ms"


class QueueOptions(TypedDict, total=False):
    """Settings of a queue. Lengths of time are timedeltas or seconds; None removes a limit."""

    mode: Literal["aging", "strict", "fifo"]
    weight: int
    lease: Duration
    max_length: int | None
    default_priority: int
    min_priority: int
    max_priority: int
    aging: Duration
    max_aging_bonus: float | None
    retry_penalty: float
    deadline_weight: float
    deadline_horizon: Duration
    keep_finished: Duration
    keep_dead: Duration
    archive: bool
    keep_archive: Duration
    enqueue_rate: int | None
    enqueue_burst: int | None
    client_rate: int | None
    client_burst: int | None
    fairness_weights: Mapping[str, int]
    promote_per_second: int | None


class QueueAdmin:
    """The part of an app that administers queues."""

    client: Client

    def configure_queue(self, queue: str, **options: Unpack[QueueOptions]) -> Queue:
        """Create a queue, or change the given settings of it. Every worker and client follows at once.

            app.configure_queue("mail", max_length=10_000, enqueue_rate=100)

        Raises ConfigError for a wrong value.
        """
        check_queue_name(queue)
        changes = _setting_changes(options)
        client = self.client
        return client.write(lambda store: store.save_queue(QueueName(queue), changes, actor=client.actor))

    async def configure_queue_async(self, queue: str, **options: Unpack[QueueOptions]) -> Queue:
        """`configure_queue` for coroutines."""
        return await self.client.run_in_thread(self.configure_queue, queue, **options)

    def estimate_drain_seconds(self, queue: str) -> float | None:
        """Return the seconds until the pending jobs of a queue are done at its throughput of the last minute.

        None if no job was completed in that time.
        """
        name = QueueName(queue)
        pending = self.client.counts([name])[name].pending
        throughput = self.client.read(lambda reader: reader.throughputs([name]))[name]
        wait_ms = throughput.wait_ms(pending) if pending else 0
        return None if wait_ms is None else wait_ms / 1_000

    async def estimate_drain_seconds_async(self, queue: str) -> float | None:
        """`estimate_drain_seconds` for coroutines."""
        return await self.client.run_in_thread(self.estimate_drain_seconds, queue)


def _setting_changes(options: QueueOptions) -> dict[str, object]:
    """Return the options as fields of QueueSettings; raise ConfigError for an unknown one."""
    from forebay.domain.queue import QueueSettings  # noqa: PLC0415 - most programs set nothing

    known, changes = QueueSettings.__struct_fields__, dict[str, object]()
    for name, value in cast(Mapping[str, Any], options).items():
        if f"{name}{_UNIT}" in known:
            changes[f"{name}{_UNIT}"] = duration_ms(name, value)
        elif name in known and not name.endswith(_UNIT):
            changes[name] = value
        else:
            names = ", ".join(field.removesuffix(_UNIT) for field in known)
            raise ConfigError(f"there is no queue setting {name!r}; the settings are {names}")
    return changes
