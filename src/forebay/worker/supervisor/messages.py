"""Messages between a supervisor and a worker process, with the decoders of each side."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from forebay.domain.job import JobId
from forebay.domain.lease import Lease
from forebay.domain.outcome import AttemptError
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import Command
from forebay.stores.contract.claims_and_results import LeaseRefusal, PendingCancel

MessageT = TypeVar("MessageT")


class WorkerReady(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """A worker process has loaded its app and is ready to begin.

    The store's address may hold a password. It is sent here, as is the key for a service, and stands on no
    command line.
    """

    info: WorkerInfo
    url: str
    is_shared: bool
    key: str | None = None

    def __repr__(self) -> str:
        return f"WorkerReady({self.info.id})"


class StatusChanged(msgspec.Struct, frozen=True, kw_only=True, tag="status"):
    """The worker's status has changed."""

    info: WorkerInfo


class WorkerRetiring(msgspec.Struct, frozen=True, kw_only=True, tag="retiring"):
    """The worker claims nothing more and ends when its jobs have. Another process should replace it, in so
    many seconds."""

    reason: str
    replace_after: float = 0.0


class CommandAnswered(msgspec.Struct, frozen=True, kw_only=True, tag="command_answered"):
    """The worker has carried out a command."""

    command_id: str
    text: str


class WorkerStopped(msgspec.Struct, frozen=True, kw_only=True, tag="stopped"):
    """The worker has stopped in order; its process ends now."""


class WorkerAccepted(msgspec.Struct, frozen=True, kw_only=True, tag="accepted"):
    """The supervisor renews the worker's leases from now on."""

    is_paused: bool = False


class LeasesRenewed(msgspec.Struct, frozen=True, kw_only=True, tag="renewed"):
    """Result of a renewal.

    `at` is its time, in milliseconds since 1970. `since` is when it was requested, by CLOCK_MONOTONIC: a
    worker that reads this late must not take a lease for fresher than it is.
    """

    at: int
    since: float
    renewed: tuple[Lease, ...] = ()
    refused: tuple[LeaseRefusal, ...] = ()


class RenewalFailed(msgspec.Struct, frozen=True, kw_only=True, tag="renewal_failed"):
    """These leases could not be renewed now; `failures` in a row."""

    leases: tuple[Lease, ...]
    failures: int


class CancelsRequested(msgspec.Struct, frozen=True, kw_only=True, tag="cancels"):
    """These jobs shall stop."""

    cancels: tuple[PendingCancel, ...]


class CommandSent(msgspec.Struct, frozen=True, kw_only=True, tag="command"):
    """An operator's command. A worker that reads it after `until`, by CLOCK_MONOTONIC, ignores it."""

    command: Command
    until: float


class StopWorker(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """Stop in order; 0 is at once."""

    drain: float


class SetPaused(msgspec.Struct, frozen=True, kw_only=True, tag="pause"):
    """Stop claiming for now, or resume."""

    is_over: bool = False


class WakeUp(msgspec.Struct, frozen=True, kw_only=True, tag="wake_up"):
    """Something may have come to the store."""


class JobMarkedDead(msgspec.Struct, frozen=True, kw_only=True, tag="job_dead"):
    """The supervisor has moved a job of a dead process to the dead letters: call the error listeners."""

    job_id: JobId
    attempt: int
    failures: int
    crashes: int
    reason: str | None
    error: AttemptError


ToSupervisor = WorkerReady | StatusChanged | WorkerRetiring | CommandAnswered | WorkerStopped
ToWorker = (
    WorkerAccepted
    | LeasesRenewed
    | RenewalFailed
    | CancelsRequested
    | CommandSent
    | StopWorker
    | SetPaused
    | WakeUp
    | JobMarkedDead
)
# Each side decodes only messages to it. Anything else is invalid, like bytes that a task has written.
TO_SUPERVISOR: Final[msgspec.json.Decoder[ToSupervisor]] = msgspec.json.Decoder(ToSupervisor)
TO_WORKER: Final[msgspec.json.Decoder[ToWorker]] = msgspec.json.Decoder(ToWorker)
