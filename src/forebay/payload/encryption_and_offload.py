"""Payload pipeline: encrypt and offload payloads and results on write, decrypt and fetch them on read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from time import monotonic
from typing import Final

from msgspec.structs import replace

from forebay.domain.job import Job, JobId, NewJob
from forebay.domain.lane import capability_lane
from forebay.domain.progress import JobProgress, ProgressUpdate
from forebay.domain.schedule import Schedule
from forebay.domain.settlement import Settlement
from forebay.domain.stored_document import CHANNEL, Document
from forebay.errors import BlobGone, CorruptPayload, StoreUnavailable
from forebay.payload.blob_stores import BlobName, Blobs, blob_name
from forebay.payload.codec import check_new_payload, check_queue, frame, parse_frame, unreadable_marker
from forebay.payload.encryption_keys import EncryptionKeys
from forebay.payload.store_identity import StoreIdentity
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.id_generator import new_id

MAX_INLINE: Final = 262_144
BLOB_CACHE_SIZE: Final = 16  # in memory: a waiting client reads its job four times a second
UNAVAILABLE_SECONDS: Final = 10.0

_START: Final = b"fb1 "
_FIRST_FIELD: Final = 12

logger: logging.Logger = logging.getLogger(__name__)


class PayloadPipeline:
    """Encrypts with `keys`, and then stores in `blobs` what is larger than `above` bytes.

    Names of blobs begin with the id of the store. Without `makes_id` no id is created for a store that has
    none: inside a caller transaction. With `requires_encryption` unencrypted payloads and results are
    refused.

    Payloads are bound to the store and to the queue that they are inserted into, and their header names both.
    The queue must be that of the new job (`check_queue`): a copied ciphertext cannot be inserted elsewhere. A
    stored job may be in another queue than its header says, moved by `update_job` or `revive`. These need a
    role for both queues and work without keys. So decrypting does not compare the queues.

    Unreadable bytes stay as they are stored, and the codec raises the reason when they are decoded. So a list
    of jobs never fails because of one of them, and a worker parks a job that another one can decrypt.
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
        self.store_id: Callable[[], str] = identity.get_or_create if makes_id else identity.require
        self._identity = identity
        self._makes_id = makes_id
        self._above = above
        self._requires_encryption = requires_encryption
        self._read_blob_cached = lru_cache(maxsize=BLOB_CACHE_SIZE)(self._read_blob)
        self._unavailable_since: float | None = None

    @property
    def may_block(self) -> bool:
        """True if encoding may wait for a disk or a network."""
        return self.blobs is not None or (self.keys is not None and not self._identity.is_read)

    # Into the store

    def encode_job(self, job: NewJob) -> NewJob:
        """Encode a new job for the store. The store assigns ids on insert, so the ciphertext is bound to the
        task. A job with an offloaded payload gets its id here, since the name of the blob contains it."""
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
        """Encode the job of a schedule. Its payload is copied to many jobs, so it is never a blob of one."""
        check_new_payload(job.payload, None)
        return job.with_payload(self._encrypt(job.payload, _call_context(job.task), job.queue))

    def encode_settlement(self, end: Settlement) -> Settlement:
        """Encode a settlement with its follow-ups."""
        if end.result is None and not end.follow_ups:
            return end
        follow_ups = tuple(map(self.encode_job, end.follow_ups))
        if end.result is None:
            return replace(end, follow_ups=follow_ups)
        data = self._encrypt(end.result, _result_context(end.job_id), end.queue)
        reference = self._offload(end.job_id, "result", data) if self._is_large(data) else None
        return replace(end, result=reference or data, follow_ups=follow_ups)

    def encode_update(self, update: ProgressUpdate) -> ProgressUpdate:
        """Encode a progress update: results of steps are encrypted."""
        if not update.steps:
            return update
        context = _step_context(update.lease.job_id)
        steps = tuple(
            replace(step, result=self._encrypt(step.result, context, update.queue)) for step in update.steps
        )
        return replace(update, steps=steps)

    def encode_schedule(self, schedule: Schedule) -> Schedule:
        """Encode a schedule for the store."""
        job = schedule.definition.job
        check_queue(job.payload, job.queue)
        return _with_job(schedule, self.encode_run(job))

    def encode_document(self, document: Document) -> Document:
        """Encode a document for the store: secrets of alert channels are encrypted."""
        if self.keys is None or document.kind != CHANNEL:
            return document
        from forebay.payload.alert_channel_encryption import encrypt_channel  # noqa: PLC0415 - most programs have no alerts

        return encrypt_channel(self.keys, document)

    def _encrypt(self, data: bytes, context: str, queue: str | None) -> bytes:
        if self.keys is None:
            return data
        if _has_fields(data):
            self._check_encrypted(_fields(data))
            return data
        bindings = {"queue": queue, "store": self._identity.for_encryption(create=self._makes_id)}
        return self.keys.encrypt(data, context, **{name: value for name, value in bindings.items() if value})

    def _check_encrypted(self, fields: Mapping[str, str]) -> None:
        """Raise CorruptPayload for unencrypted bytes if encryption is required. A reference to a blob passes:
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
        """Store bytes as a blob; return the reference for the row, or None if they must stay inline."""
        if self.blobs is None:
            return None
        try:
            name = str(BlobName(self.store_id(), job_id, kind, new_id(), sha256(data).hexdigest()))
            if blob_name(name) is None:  # an id from a user may be no valid file name
                return None
            # Before the row: a row without its blob would be a job that no worker can run. A blob without a
            # row is found and removed a week later.
            self.blobs.put(name, data)
        except Exception as exc:  # a user's own blob store may raise anything, and the job must not be lost
            _log("%s of job %s stays in the store: %s", exc, kind, job_id, exc)
            return None
        return frame(b"", blob=name)

    # Out of the store

    def decode_job(self, job: Job, *, fetches: bool = True) -> Job:
        """Decode a job: payload and result as they were given. Without `fetches` blobs are not read."""
        payload = self._decode(job.payload, _call_context(job.task), fetches)
        result = None if job.result is None else self._decode(job.result, _result_context(job.id), fetches)
        if payload is job.payload and result is job.result:
            return job
        return replace(job, payload=payload, result=result)

    def decode_progress(self, job_id: str, progress: JobProgress) -> JobProgress:
        """Decode step results of a job."""
        context = _step_context(job_id)
        steps = (replace(step, result=self._decode(step.result, context)) for step in progress.steps)
        return replace(progress, steps=tuple(steps)) if progress.steps else progress

    def decode_schedule(self, schedule: Schedule) -> Schedule:
        """Decode a schedule with the payload of its jobs."""
        job = schedule.definition.job
        return _with_job(schedule, job.with_payload(self._decode(job.payload, _call_context(job.task))))

    def decode_document(self, document: Document) -> Document:
        """Decode a document: secrets of alert channels are decrypted."""
        if self.keys is None or document.kind != CHANNEL:
            return document
        from forebay.payload.alert_channel_encryption import decrypt_channel  # noqa: PLC0415 - as above

        return decrypt_channel(self.keys, document)

    def _decode(self, data: bytes, context: str, fetches: bool = True) -> bytes:
        try:
            return self._decrypt(self._fetch_blob(data) if fetches else data, context)
        except CorruptPayload as exc:
            return unreadable_marker(exc)

    def _fetch_blob(self, data: bytes) -> bytes:
        """Return the blob that a reference names, if it is readable; else the reference."""
        name = blob_of(data)
        if name is None or self.blobs is None:
            return data
        try:
            return self._read_blob_cached(name)
        except CorruptPayload:
            raise
        except Exception as exc:
            # Also for errors of a user's own blob store: the job is claimed already. If the error were raised
            # here, neither this job nor the rest of the claim would run, and no worker would know.
            self._unavailable_since = monotonic()
            _log("the blob %.160s cannot be read: %s", exc, name, exc)
            return data

    def _read_blob(self, name: str) -> bytes:
        parts = blob_name(name)
        data = self.blobs.get(name) if self.blobs is not None and parts is not None else None
        if data is None or parts is None:
            raise BlobGone(f"its blob {name:.160} is missing", field="payload")
        if sha256(data).hexdigest() != parts.digest:
            raise CorruptPayload(f"its blob {name:.160} was changed", field="payload")
        return data

    def _decrypt(self, data: bytes, context: str) -> bytes:
        if self.keys is None:
            return data
        fields, body = (parse_frame(data) if _has_fields(data) else None) or ({}, b"")
        self._check_encrypted(fields)
        decrypted = self.keys.decrypt(fields, body, context) if "key" in fields else None
        if decrypted is None:
            return data
        if "store" in fields and not self._identity.is_ours(fields["store"]):
            raise CorruptPayload("encrypted for another store", field="payload")
        return decrypted

    def add_readable_lanes(self, claim: QueueClaim) -> QueueClaim:
        """Add to a claim the lanes of payloads that this program can read."""
        if claim.lanes is None:
            return claim
        return claim._replace(lanes=claim.lanes | self._readable_lanes())

    def _readable_lanes(self) -> frozenset[str]:
        names = () if self.keys is None else self.keys.names
        lanes = {capability_lane(f"key {name}") for name in names}
        if self.blobs is not None and not self._are_blobs_unavailable():
            lanes.add(capability_lane("blobs"))
        return frozenset(lanes)

    def _are_blobs_unavailable(self) -> bool:
        """Return whether the blob store was unreachable just now. Its jobs are parked then, instead of being
        claimed in vain again and again."""
        return (
            self._unavailable_since is not None
            and monotonic() < self._unavailable_since + UNAVAILABLE_SECONDS
        )


def blob_of(data: bytes | None) -> str | None:
    """Return the name of the blob that stored bytes refer to; None for inline bytes."""
    return None if data is None else _fields(data).get("blob")


def _fields(data: bytes) -> Mapping[str, str]:
    return ((parse_frame(data) if _has_fields(data) else None) or ({}, b""))[0]


def _log(message: str, exc: Exception, *args: object) -> None:
    # One line for an unreachable blob store; an unexpected error with its traceback.
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
