"""Every error that Forebay raises, by what the caller can do about it.

ForebayError
  ConfigError              fix the settings
  InvalidJob               fix the request; `field` names the part
    PayloadError           fix the arguments (cannot encode, decode, too large)
      CorruptPayload       enqueue a new job: stored bytes are not what was written
        BlobGone           restore the blob; the job is tried again
      NewerPayload         upgrade this program: the bytes are intact, but of a later version
        UnknownEncryptionKey  give this program the encryption key that `key` names
  UnknownTask              deploy the code, or correct the name
  JobNotFound              check the id; the job may have been pruned or deleted
  QueueNotFound            check the name: `forebay queues list`
  WorkerNotFound           check the id: `forebay workers list`; it may have stopped
  ScheduleNotFound         check the name: `forebay schedules list`
  ApiKeyNotFound           check the name: `forebay keys list`
  SessionNotFound          check the id: `forebay sessions list`
  AlertNotFound            check the id: `forebay alerts list`; the oldest are deleted
  AlertRuleNotFound        check the id: `forebay alerts rules`
  GradualReviveNotFound    check the name: `forebay gradual-revives list`
  WorkersDied              read the log of the workers: they die right after their start
  DuplicateJob             use the job that `holder` names, or another key
  QueueFull                try later, or raise the queue's max_length
  RateLimited              try again after `retry_after` seconds
  TooManyRequests          of a service: send the request again after `retry_after` seconds
  Unauthenticated          of a service: send a valid API key
  Forbidden                of a service: use a key with another role, or for another queue
  QueueClosed              choose another queue, or `forebay queues resume`: it is draining or was dropped
  QueueNotEmpty            empty it first, or drop it by force
  IllegalTransition        read the state of the job first; it does not allow this
  JobFailed                read the reason: `forebay dead show ID`; then revive it or not
  JobCancelled             nothing, if it was intended; `forebay jobs show ID` names the actor
  WaitTimeout              wait again: the job goes on
  LeaseLost                stop: raised in a task whose lease is lost; its result will be refused
  StoreError               see its kinds; of itself: the handle of the store is closed
    StoreUnavailable       try again later; workers do so by themselves
      StoreBusy            try again once the transaction that holds a key, an id or a job has ended
      StoreLocked          end the transaction of the program that locks the whole store
    StoreRefused           change the value: it can never be stored here
    StoreUnusable          repair the file, the server or the address; the message says what is wrong
    SchemaOutdated         run `forebay migrate`, or move the jobs as the message says
    SchemaNewer            upgrade this program

Raised by task code to set the outcome of its attempt:

PermanentError             no further attempt makes sense
RetryableError             another attempt makes sense, whatever the task lists in no_retry_for
JobSignal
  Retry                    failed; try again, perhaps after a time of the task's own
  Snooze                   run later; not a failure
  Discard                  to the dead letters, with a reason
  Cancel                   cancelled, with a reason
"""

from __future__ import annotations


class ForebayError(Exception):
    """Base class of all errors that Forebay raises."""


class ConfigError(ForebayError, ValueError):
    """A setting is missing, unknown or out of range."""


class InvalidJob(ForebayError, ValueError):
    """A request to run a job is not valid; `field` names the part to change."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class PayloadError(InvalidJob):
    """The arguments cannot be encoded or decoded, or are too large."""


class CorruptPayload(PayloadError):
    """The stored bytes were changed, or were never a payload; they are never given to a task."""


class NewerPayload(PayloadError):
    """The stored bytes are intact, but of a later version, or need a setting that is missing here.

    `requires` is the setting that a program needs to read them; None if it must be a later version.
    """

    def __init__(self, message: str, *, field: str | None = None, requires: str | None = None) -> None:
        super().__init__(message, field=field)
        self.requires = requires


class UnknownEncryptionKey(NewerPayload):
    """The stored bytes are encrypted with a key that this program was not given; `key` names it."""

    def __init__(self, message: str, *, key: str, field: str | None = None) -> None:
        super().__init__(message, field=field, requires=f"key {key}")
        self.key = key


class UnknownTask(ForebayError):
    """No task of this name is registered in this program."""


class JobNotFound(ForebayError, LookupError):
    """No job has this id."""


class QueueNotFound(ForebayError, LookupError):
    """No queue has this name."""


class WorkerNotFound(ForebayError, LookupError):
    """No worker has this id."""


class ScheduleNotFound(ForebayError, LookupError):
    """No schedule has this name."""


class GradualReviveNotFound(ForebayError, LookupError):
    """No gradual revive has this name."""


class ApiKeyNotFound(ForebayError, LookupError):
    """No API key has this name."""


class SessionNotFound(ForebayError, LookupError):
    """No browser session has this id."""


class AlertNotFound(ForebayError, LookupError):
    """No alert has this id; the oldest ones are deleted."""


class AlertRuleNotFound(ForebayError, LookupError):
    """No alert rule has this id."""


class WorkersDied(ForebayError):
    """Worker processes have died again and again, and their supervisor has given up."""


class DuplicateJob(ForebayError, ValueError):
    """A key or an id is taken; `holder` is the id of the job that has it."""

    def __init__(self, message: str, *, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


class QueueFull(ForebayError):
    """The queue holds as many pending jobs as its `max_length` allows.

    `retry_after` is the time in seconds until the queue should have room, by its throughput of the last
    minute. None if nothing was completed lately, or if the call asked for more than the queue ever takes.
    """

    def __init__(self, message: str, *, queue: str, limit: int, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.queue = queue
        self.limit = limit
        self.retry_after = retry_after


class RateLimited(ForebayError):
    """Jobs come faster than the queue takes them: of this client, or of all clients where `client` is None.

    `limit` is the rate per second. After `retry_after` seconds the same call would be accepted; None if the
    call asked for more than the queue ever takes at once.
    """

    def __init__(
        self, message: str, *, queue: str, client: str | None, limit: int, retry_after: float | None
    ) -> None:
        super().__init__(message)
        self.queue = queue
        self.client = client
        self.limit = limit
        self.retry_after = retry_after


class TooManyRequests(ForebayError):
    """A client sends more requests to a service than its `limit` at once. One more is accepted after
    `retry_after` seconds, and as many again after `reset_seconds`."""

    def __init__(self, message: str, *, limit: int, retry_after: float, reset_seconds: int) -> None:
        super().__init__(message)
        self.limit = limit
        self.retry_after = retry_after
        self.reset_seconds = reset_seconds


class Unauthenticated(ForebayError):
    """A request to a service has no API key, or one that is wrong, expired or revoked."""


class Forbidden(ForebayError):
    """The API key of the request does not allow this."""


class QueueClosed(ForebayError):
    """The queue takes no new jobs: it is draining or was dropped."""


class QueueNotEmpty(ForebayError):
    """The queue still has jobs, so it is not dropped without force."""


class IllegalTransition(ForebayError):
    """The job's state does not allow the action; the job is unchanged."""


class JobFailed(ForebayError):
    """A job will not be tried again, so it has no result."""


class JobCancelled(ForebayError):
    """A job was cancelled, so it has no result."""


class WaitTimeout(ForebayError, TimeoutError):
    """A job was not final when the time-out of the caller was over; it goes on. `state` is its last state."""

    def __init__(self, message: str, *, job_id: str, state: str) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.state = state


class LeaseLost(ForebayError):
    """The lease of the running attempt is lost: another attempt may run, and the result of this one will be
    refused."""


class StoreError(ForebayError):
    """Base class of all errors of a store."""


class StoreUnavailable(StoreError):
    """The store does not answer now (locked, full, unreachable); the same call may work later."""


class StoreBusy(StoreUnavailable):
    """Another transaction holds a key, an id or a job that the call needs. Nothing has happened. The same
    call works once that transaction ends; calls that need none of its locks work now."""


class StoreLocked(StoreUnavailable):
    """A transaction of another program locks the whole store, and every call waits for its end. Nothing has
    happened."""


class StoreRefused(StoreError):
    """The store can never hold this value; the whole call was rolled back."""


class StoreUnusable(StoreError):
    """The store's file or server cannot be used as it is: read-only, not a database, wrong place."""


class SchemaOutdated(StoreError):
    """The store's schema is older than this program needs."""


class SchemaNewer(StoreError):
    """The store's schema needs a newer program."""


class PermanentError(Exception):
    """Raised by task code, or a base of its own errors: no further attempt makes sense."""


class JobSignal(Exception):
    """Raised by task code to set the outcome of its attempt."""


class Retry(JobSignal):
    """The attempt failed; try again, after `after` seconds instead of the policy's delay if given."""

    def __init__(self, reason: str = "", *, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class Snooze(JobSignal):
    """Run the job again after `delay` seconds; this is not a failure."""

    def __init__(self, delay: float) -> None:
        super().__init__(f"snoozed for {delay} s")
        self.delay = delay


class Discard(JobSignal):
    """Move the job to the dead letters; no further attempt makes sense."""


class Cancel(JobSignal):
    """End the job as cancelled."""


class RetryableError(Exception):
    """Raised by task code, or a base of its own errors: tried again while retries remain, even if the task
    lists it in `no_retry_for`."""


class BlobGone(CorruptPayload, RetryableError):
    """The blob that the stored bytes refer to is missing. Tried again while retries remain: a blob may be
    restored in between."""
