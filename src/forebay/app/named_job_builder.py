"""Jobs built from a task name and arguments, for tasks that this program need not import."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay.app.job_options import CallOptions, merge_options
from forebay.app.job_template import JobTemplate, make_template
from forebay.app.registry import Registry
from forebay.app.task import ConfiguredTask
from forebay.domain.job import NewJob
from forebay.domain.job_validation import MAX_PAYLOAD
from forebay.errors import ConfigError, InvalidJob, PayloadError
from forebay.payload.codec import encode_call

if TYPE_CHECKING:
    from forebay.stores.contract.claims_and_results import OnConflict


class JobRequest(NamedTuple):
    """A job to be stored, and what to do if its key is taken."""

    job: NewJob
    on_conflict: OnConflict


class JobBuilder:
    """Builds jobs from names. A task that is registered here brings its options and checks the signature."""

    def __init__(
        self, registry: Registry, defaults: CallOptions, max_payload: int, now_ms: Callable[[], int]
    ) -> None:
        self._registry = registry
        self._defaults = defaults
        self._max_payload = max_payload
        self._now_ms = now_ms

    def build_request(
        self, task: str | NewJob, args: Sequence[Any], kwargs: Mapping[str, Any] | None, options: CallOptions
    ) -> JobRequest:
        """Return the job to store; raise InvalidJob, PayloadError or ConfigError naming what is wrong."""
        if isinstance(task, NewJob):
            return self._accept_job(task, args, kwargs, options)
        if not isinstance(task, str):
            raise InvalidJob(f"name a task by its text, or call its enqueue; not {task!r:.60}", field="task")
        placed, named = _check_arguments(args, kwargs)
        if task in self._registry:
            call: ConfiguredTask[..., Any] = self._registry[task].using(**options)
            return JobRequest(call.job(*placed, **named), call.on_conflict)
        template: JobTemplate = make_template(task, merge_options(options, self._defaults))
        payload = encode_call(placed, named, limit=self._max_payload)
        return JobRequest(template.build(payload, self._now_ms), template.on_conflict)

    def check_sizes(self, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        """Return the same jobs; raise PayloadError if one is larger than this app allows."""
        if self._max_payload == MAX_PAYLOAD:
            return jobs  # NewJob checks this bound itself
        jobs = list(jobs)  # iterated twice
        for job in jobs:
            size = len(getattr(job, "payload", b""))  # the client refuses objects of another type
            if size > self._max_payload:
                raise PayloadError(
                    f"the payload of {job.task} has {size:,} bytes, the limit (max_payload) is "
                    f"{self._max_payload:,}; keep the data elsewhere and pass a reference",
                    field="payload",
                )
        return jobs

    def _accept_job(
        self, job: NewJob, args: Sequence[Any], kwargs: Mapping[str, Any] | None, options: CallOptions
    ) -> JobRequest:
        if args or kwargs or set(options) - {"on_conflict"}:
            raise ConfigError(
                "a NewJob has its own arguments and options; only on_conflict can be given with it"
            )
        [job] = self.check_sizes([job])
        return JobRequest(job, make_template(job.task, options).on_conflict)


def _check_arguments(
    args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> tuple[list[Any], dict[str, Any]]:
    # A str is a sequence too: "ada" would become three arguments.
    if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
        raise PayloadError(f"args must be a list of arguments: write args=[{args!r:.60}]", field="args")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise PayloadError(f"kwargs must be a dict, not {kwargs!r:.60}", field="kwargs")
    named = dict(kwargs or {})
    for name in named:
        if not isinstance(name, str):
            raise PayloadError(f"kwargs must have texts as keys, not {name!r:.60}", field="kwargs")
    return list(args), named
