"""What is done to payloads and results on their way into a store and out of it: sealed, and put away if they
are large."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from time import monotonic
from typing import Final

from msgspec.structs import replace

from forebay.domain.document import CHANNEL, Document
from forebay.domain.job import Job, JobId, NewJob
from forebay.domain.lane import capability_lane
from forebay.domain.progress import JobProgress, ProgressUpdate
from forebay.domain.schedule import Schedule
from forebay.domain.settlement import Settlement
from forebay.errors import BlobGone, CorruptPayload, StoreUnavailable
from forebay.payload.blobs import BlobName, Blobs, blob_name
from forebay.payload.codec import (
    check_new_payload,
    check_queue,
    frame,
    parse_frame,
    unreadable_marker,
)
from forebay.payload.encryption_keys import EncryptionKeys
from forebay.payload.store_identity import StoreIdentity
from forebay.stores.contract.values import QueueClaim
from forebay.stores.ids import new_id

MAX_INLINE: Final = 262_144
BLOB_CACHE_SIZE: Final = 16  # in memory: whoever waits for a job looks at it four times a second
UNAVAILABLE_SECONDS: Final = 10.0

_START: Final = b"fb1 "
_FIRST_FIELD: Final = 12

logger: logging.Logger = logging.getLogger(__name__)


class PayloadPipeline:
    """Seals with `keys`, and keeps in `blobs` what is larger than `above` bytes then, under names that begin
    with the id of the store. Without `makes_id` no id is made for a store that has none: inside a transaction
    of the caller. With `requires_encryption` payloads and results that are not encrypted are refused.

    Payloads are bound to the store and to the queue that they are inserted into, and their header names both.
    The queue must be that of the new job (`check_queue`): a copied ciphertext cannot be inserted elsewhere. A
    stored job may be in another queue than its header says: `amend` or `revive` has moved it, which takes a
    role for both queues and works without keys. So opening does not compare the queues.

    What cannot be opened here stays as it is stored, and the codec says why to whoever wants to read it: so a
    list of jobs never fails because of one of them, and a worker holds a job that another one can open.
    """

    def __init__(
        self,
        keys: EncryptionKeys | None,
        blobs: Blobs | None,
        identity: StoreIdentity,
        *,
        above: int = MAX_INLINE,
        requires_encryption: bool = False,
        makes_id: bool = True,
    ) -> None:
        self.keys = keys
        self.blobs = blobs
        self.store_id = identity.get_or_create if makes_id else identity.require
        self._identity = identity
        self._makes_id = makes_id
        self._above = above
        self._requires_encryption = requires_encryption
        self._read_blob_cached = lru_cache(maxsize=BLOB_CACHE_SIZE)(self._read_blob)
        self._unavailable_since: float | None = None

    @property
    def may_block(self) -> bool:
        """Whether wrapping may wait for a disk or a network."""
        return self.blobs is not None or (self.keys is not None and not self._identity.is_read)

    # Into the store

    def encode_job(self, job: NewJob) -> NewJob:
        """A new job as it is stored. The store gives ids as it inserts, so what is sealed is bound to the
        task; one whose payload goes to the blobs brings its id, for their names are made of it."""
        check_new_payload(job.payload, job.id)
        check_queue(job.payload, job.queue)
        data = self._encrypt(job.payload, _call_context(job.task), job.queue)
        if self._is_large(data):
            job_id = job.id or new_id()
            reference = self._offload(job_id, "payload", data)
            if reference is not None:
                return replace(job, id=job_id, payload=reference)
        return job.with_payload(data)

    def encode_run(self, job: NewJob) -> NewJob:
        """The job of a schedule: its payload is copied to many, so it is no single one's blob."""
        check_new_payload(job.payload, None)
        return job.with_payload(self._encrypt(job.payload, _call_context(job.task), job.queue))

    def encode_settlement(self, end: Settlement) -> Settlement:
        """A settlement as it is stored, with its follow-ups."""
        if end.result is None and not end.follow_ups:
            return end
        follow_ups = tuple(map(self.encode_job, end.follow_ups))
        if end.result is None:
            return replace(end, follow_ups=follow_ups)
        data = self._encrypt(end.result, _result_context(end.job_id), end.queue)
        reference = self._offload(end.job_id, "result", data) if self._is_large(data) else None
        return replace(end, result=reference or data, follow_ups=follow_ups)

    def encode_update(self, update: ProgressUpdate) -> ProgressUpdate:
        """A note as it is stored: the results of steps are sealed."""
        if not update.steps:
            return update
        about = _step_context(update.lease.job_id)
        steps = tuple(
            replace(step, result=self._encrypt(step.result, about, update.queue)) for step in update.steps
        )
        return replace(update, steps=steps)

    def encode_schedule(self, schedule: Schedule) -> Schedule:
        """A schedule as it is stored."""
        job = schedule.definition.job
        check_queue(job.payload, job.queue)
        return _with_job(schedule, self.encode_run(job))

    def encode_document(self, document: Document) -> Document:
        """A document as it is stored: the secrets of alert channels are encrypted."""
        if self.keys is None or document.kind != CHANNEL:
            return document
        from forebay.payload.channel_encryption import encrypt_channel  # noqa: PLC0415 - most programs have no alerts

        return encrypt_channel(self.keys, document)

    def _encrypt(self, data: bytes, context: str, queue: str | None) -> bytes:
        if self.keys is None:
            return data
        if _has_fields(data):
            self._check_encrypted(_fields(data))
            return data
        places = {"queue": queue, "store": self._identity.for_encryption(create=self._makes_id)}
        return self.keys.encrypt(data, context, **{name: one for name, one in places.items() if one})

    def _check_encrypted(self, fields: Mapping[str, str]) -> None:
        """Raise CorruptPayload for plain bytes where encryption is required. A reference to a blob passes:
        the blob is checked when it is read."""
        if self._requires_encryption and not fields.keys() & {"key", "blob"}:
            raise CorruptPayload(
                "not encrypted, which this program requires (require_encryption); give the program that "
                "wrote it encryption_keys",
                field="payload",
            )

    def _is_large(self, data: bytes) -> bool:
        return self.blobs is not None and len(data) > self._above

    def _offload(self, job_id: JobId, kind: str, data: bytes) -> bytes | None:
        """What stands in the store for bytes that are kept elsewhere; None if they must stay."""
        if self.blobs is None:
            return None
        try:
            name = str(BlobName(self.store_id(), job_id, kind, new_id(), sha256(data).hexdigest()))
            if blob_name(name) is None:  # an id that somebody brought may be no name of a file
                return None
            # Before the row: one that refers to nothing would be a job that nobody can run. What is kept
            # for no row is found and removed a week later.
            self.blobs.put(name, data)
        except Exception as exc:  # the place may be somebody's own, and a job must not be lost for it
            _log("%s of job %s stays in the store: %s", exc, kind, job_id, exc)
            return None
        return frame(b"", blob=name)

    # Out of the store

    def decode_job(self, job: Job, *, fetches: bool = True) -> Job:
        """A job with its payload and its result as they were given; without `fetches` blobs stay where they
        are."""
        payload = self._decode(job.payload, _call_context(job.task), fetches)
        result = None if job.result is None else self._decode(job.result, _result_context(job.id), fetches)
        if payload is job.payload and result is job.result:
            return job
        return replace(job, payload=payload, result=result)

    def decode_progress(self, job_id: str, progress: JobProgress) -> JobProgress:
        """Notes with the results of steps as they were given."""
        about = _step_context(job_id)
        steps = (replace(step, result=self._decode(step.result, about)) for step in progress.steps)
        return replace(progress, steps=tuple(steps)) if progress.steps else progress

    def decode_schedule(self, schedule: Schedule) -> Schedule:
        """A schedule with the payload of its jobs as it was given."""
        job = schedule.definition.job
        return _with_job(schedule, job.with_payload(self._decode(job.payload, _call_context(job.task))))

    def decode_document(self, document: Document) -> Document:
        """A document as it was given."""
        if self.keys is None or document.kind != CHANNEL:
            return document
        from forebay.payload.channel_encryption import decrypt_channel  # noqa: PLC0415 - as above

        return decrypt_channel(self.keys, document)

    def _decode(self, data: bytes, context: str, fetches: bool = True) -> bytes:
        try:
            return self._decrypt(self._fetch_blob(data) if fetches else data, context)
        except CorruptPayload as exc:
            return unreadable_marker(exc)

    def _fetch_blob(self, data: bytes) -> bytes:
        """What a reference refers to, if it can be had."""
        name = blob_of(data)
        if name is None or self.blobs is None:
            return data
        try:
            return self._read_blob_cached(name)
        except CorruptPayload:
            raise
        except Exception as exc:
            # Also what a place of somebody's own raises: the job was claimed, and if this passed through here
            # nobody would know, and neither this job nor the others of its claim would run.
            self._unavailable_since = monotonic()
            _log("the blob %.160s cannot be read: %s", exc, name, exc)
            return data

    def _read_blob(self, name: str) -> bytes:
        parts = blob_name(name)
        data = self.blobs.get(name) if self.blobs is not None and parts is not None else None
        if data is None or parts is None:
            raise BlobGone(f"its blob {name:.160} is gone", field="payload")
        if sha256(data).hexdigest() != parts.digest:
            raise CorruptPayload(f"its blob {name:.160} was changed", field="payload")
        return data

    def _decrypt(self, data: bytes, context: str) -> bytes:
        if self.keys is None:
            return data
        fields, body = (parse_frame(data) if _has_fields(data) else None) or ({}, b"")
        self._check_encrypted(fields)
        plain = self.keys.decrypt(fields, body, context) if "key" in fields else None
        if plain is None:
            return data
        if "store" in fields and not self._identity.is_ours(fields["store"]):
            raise CorruptPayload("encrypted for another store", field="payload")
        return plain

    def add_readable_lanes(self, claim: QueueClaim) -> QueueClaim:
        """A wish that also passes the gates of what can be opened here."""
        if claim.lanes is None:
            return claim
        return claim._replace(lanes=claim.lanes | self._readable_lanes())

    def _readable_lanes(self) -> frozenset[str]:
        names = () if self.keys is None else self.keys.names
        gates = {capability_lane(f"key {name}") for name in names}
        if self.blobs is not None and not self._are_blobs_unavailable():
            gates.add(capability_lane("blobs"))
        return frozenset(gates)

    def _are_blobs_unavailable(self) -> bool:
        """Whether the blobs could not be reached just now. Their jobs are held then; who went on to claim
        them would do nothing else."""
        return (
            self._unavailable_since is not None
            and monotonic() < self._unavailable_since + UNAVAILABLE_SECONDS
        )


def blob_of(data: bytes | None) -> str | None:
    """The name of the blob that stored bytes refer to."""
    return None if data is None else _fields(data).get("blob")


def _fields(data: bytes) -> Mapping[str, str]:
    return ((parse_frame(data) if _has_fields(data) else None) or ({}, b""))[0]


def _log(message: str, exc: Exception, *args: object) -> None:
    # A place that is away says so in a line; what we did not foresee is shown as it came.
    logger.warning(message, *args, exc_info=None if isinstance(exc, StoreUnavailable) else exc)


def _has_fields(data: bytes) -> bool:
    return data.startswith(_START) and data[_FIRST_FIELD : _FIRST_FIELD + 1] == b" "


def _call_context(task: str) -> str:
    return f"payload {task}"


def _result_context(job_id: str) -> str:
    return f"result {job_id}"


def _step_context(job_id: str) -> str:
    return f"step {job_id}"


def _with_job(schedule: Schedule, job: NewJob) -> Schedule:
    return replace(schedule, definition=replace(schedule.definition, job=job))
