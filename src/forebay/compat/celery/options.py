"""Options and settings of Celery: translated to Forebay's, or refused with the alternative."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, Final, NoReturn

from forebay.compat.unsupported import Unsupported
from forebay.domain.retry_policy import MAX_RETRIES
from forebay.errors import ConfigError

LOWEST: Final = 9
# Refused names, with the alternative.
_PARTS: Final = "put jobs together with task.job(...) and forebay's workflow, chain and group"
_FOLLOW: Final = "use a workflow, or enqueue a follow-up in the task"
_SCHEDULES: Final = "declare schedules: @app.forebay.cron(...) and @app.forebay.every(...)"
_IMPORTS: Final = "import the modules of your tasks where the app is made"
_WORKER: Final = "run `forebay worker MODULE:QUEUE`, with its options for threads and processes"
_HOOKS: Final = "use hooks of app.forebay: on_start, on_stop, on_error and middleware"
_SOFT: Final = "use soft_timeout of a task of forebay and ask current_job().is_overdue"
_CONTROL: Final = "use app.forebay, `forebay workers` and `forebay jobs`"
_KEPT: Final = "finished jobs are kept as long as their queue says: `forebay queues configure`"
_RESULT: Final = "results are kept in the store: leave it out"
_SETTLED: Final = "leave it out: a job is acknowledged when it has ended, and runs again if its worker dies"
_LIMIT: Final = "set a limit: `forebay limits set`"
_ROUTES: Final = "name the queue: queue=..., task_routes or task_default_queue"
_WAITS: Final = "leave it out: programs and workers wait for their store by themselves"
_TESTING: Final = "use forebay.testing, which runs jobs in the test itself"
_DATA: Final = (
    "give it as an argument of the task, or as metadata of a task of forebay: task.using(metadata=...)"
)
_HANDLE: Final = "use the JobHandle: `.handle` of the result, or app.forebay.job(id)"
_WAYS_OUT: Final = {
    **dict.fromkeys(("s", "si", "signature", "subtask", "chunks", "map", "starmap"), _PARTS),
    **dict.fromkeys(("chain", "group", "chord", "xmap", "xstarmap", "maybe_signature", "canvas"), _PARTS),
    **dict.fromkeys(("replace", "add_to_chord", "GroupResult", "ResultSet", "children", "parent"), _PARTS),
    **dict.fromkeys(("link", "add_callback"), _FOLLOW),
    "link_error": "use a workflow with on_failure, or app.forebay.on_error",
    **dict.fromkeys(("soft_time_limit", "task_soft_time_limit", "SoftTimeLimitExceeded"), _SOFT),
    **dict.fromkeys(("rate_limit", "task_default_rate_limit", "worker_disable_rate_limits"), _LIMIT),
    **dict.fromkeys(("beat_schedule", "add_periodic_task", "on_after_configure"), _SCHEDULES),
    **dict.fromkeys(("on_after_finalize", "crontab", "schedules", "beat_scheduler"), _SCHEDULES),
    **dict.fromkeys(("autodiscover_tasks", "include", "imports", "add_defaults"), _IMPORTS),
    **dict.fromkeys(("start", "worker_main", "Worker", "worker_concurrency", "worker_pool"), _WORKER),
    **dict.fromkeys(("worker_max_tasks_per_child", "worker_max_memory_per_child", "bootsteps"), _WORKER),
    **dict.fromkeys(("worker_prefetch_multiplier", "worker_autoscaler"), _WORKER),
    **dict.fromkeys(("signals", "on_failure", "on_success", "on_retry", "after_return"), _HOOKS),
    **dict.fromkeys(("before_start", "user_options", "steps", "base", "Task"), _HOOKS),
    **dict.fromkeys(("task_always_eager", "apply", "task_eager_propagates"), _TESTING),
    **dict.fromkeys(("result_expires", "result_extended", "store_errors_even_if_ignored"), _KEPT),
    **dict.fromkeys(("result_backend", "backend", "result_persistent", "forget"), _RESULT),
    **dict.fromkeys(("task_acks_on_failure_or_timeout", "acks_on_failure_or_timeout"), _SETTLED),
    **dict.fromkeys(("task_publish_retry", "retry", "retry_policy", "broker_transport_options"), _WAITS),
    **dict.fromkeys(("broker_connection_retry_on_startup", "broker_connection_retry"), _WAITS),
    **dict.fromkeys(("broker_pool_limit", "broker_heartbeat", "connection", "producer", "pool"), _WAITS),
    **dict.fromkeys(("headers", "reply_to", "correlation_id", "shadow", "compression"), _DATA),
    **dict.fromkeys(("task_queues", "exchange", "routing_key", "router", "add_to_queues"), _ROUTES),
    **dict.fromkeys(("task_create_missing_queues", "task_default_exchange", "amqp"), _ROUTES),
    **dict.fromkeys(("task_default_routing_key", "task_queue_max_priority"), _ROUTES),
    **dict.fromkeys(("control", "events", "Inspect", "inspect"), _CONTROL),
    **dict.fromkeys(("info", "traceback", "date_done", "collect", "iterdeps", "then"), _HANDLE),
    "update_state": "use current_job().progress",
    "send_event": "use current_job().progress or current_job().log",
    "config_from_object": "set app.conf, name by name: app.conf.update(task_default_queue=...)",
    "config_from_envvar": "set app.conf, name by name: app.conf.update(task_default_queue=...)",
    "broker_url": "say broker=... to Celery()",
    "current_app": "import your app where you need it",
    "current_task": "take the task itself with bind=True, or ask forebay's current_job()",
    "uuid": "leave it out: a job gets an id; `task_id` gives your own",
    "Ignore": "return from the task: its result is None",
    "Reject": "raise forebay.PermanentError, which goes to the dead letters at once",
    "Retry": "use self.retry(...), or raise forebay.Retry",
    "exceptions": "see forebay.errors: Retry, PermanentError, JobFailed",
    "throw": "leave it out: self.retry(...) always ends the attempt",
    "pydantic": "annotate the arguments of a task of forebay: they are checked and made by their types",
    "typing": "leave it out: arguments are checked when a job is enqueued",
    "send_events": "leave it out: `forebay top` and the dashboard read the store",
    "worker_send_task_events": "leave it out: `forebay top` and the dashboard read the store",
    "task_send_sent_event": "leave it out: `forebay top` and the dashboard read the store",
    "task_annotations": "give the options to the tasks themselves",
    "task_store_errors_even_if_ignored": "leave it out: errors of attempts are always kept",
}
# For a word that is not Celery's, or is newer than this list.
_NO_WAY_KNOWN: Final = (
    "`app.forebay` is the whole app of Forebay; docs/guide/importing.md lists what is offered"
)
# Settings and options with a fixed value here: other values are refused.
_ALWAYS: Final[dict[str, tuple[Any, ...]]] = {
    "task_serializer": ("json",),
    "result_serializer": ("json",),
    "serializer": ("json",),
    "accept_content": (["json"], ("json",), {"json"}),
    "enable_utc": (True,),
    "timezone": ("UTC",),
    "backend": (None,),
    "result_backend": (None,),
    "acks_late": (True,),
    "task_acks_late": (True,),
    "reject_on_worker_lost": (True,),
    "task_reject_on_worker_lost": (True,),
    "track_started": (True,),
    "task_track_started": (True,),
}
_SETTINGS: Final = ("task_default_queue", "task_routes", "task_time_limit", "task_ignore_result")


def refuse(name: str, context: str) -> NoReturn:
    """Raise Unsupported with the alternative."""
    raise Unsupported(refusal_message(name, context))


def refusal_message(name: str, context: str) -> str:
    """Return the message of a refusal."""
    return f"{context} {name} of Celery is not offered here: {_WAYS_OUT.get(name, _NO_WAY_KNOWN)}"


def is_known(name: str) -> bool:
    """Return whether this is a word of Celery that is refused with an alternative of its own."""
    return name in _WAYS_OUT


def check_always(given: Mapping[str, Any], context: str) -> None:
    for name, value in given.items():
        if name not in _ALWAYS:
            refuse(name, context)
        if value not in _ALWAYS[name]:
            way = f": {_WAYS_OUT[name]}" if name in _WAYS_OUT else ""
            raise ConfigError(f"{context} {name} is always {_ALWAYS[name][0]!r} here, not {value!r:.60}{way}")


class CeleryConf:
    """The offered settings. They are fixed from the first use of the app on."""

    def __init__(self) -> None:
        self.task_default_queue = "celery"
        self.task_routes: Mapping[str, Mapping[str, Any]] = {}
        self.task_time_limit: float | None = None
        self.task_ignore_result = False
        self.is_used = False

    def update(self, given: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        for name, value in {**(given or {}), **more}.items():
            setattr(self, name, value)

    def queue_of(self, task: str) -> str:
        for pattern, route in dict(self.task_routes).items():
            if fnmatchcase(task, pattern):
                if route.keys() != {"queue"}:
                    raise ConfigError(
                        f"task_routes[{pattern!r}] may say queue and nothing else: {route!r:.60}"
                    )
                return str(route["queue"])
        return self.task_default_queue

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _SETTINGS and getattr(self, "is_used", False):
            raise ConfigError(f"set {name} before the app is first used: jobs have been made without it")
        if name not in (*_SETTINGS, "is_used"):
            check_always({name: value}, "the setting")
        object.__setattr__(self, name, value)


def translate_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Translate Celery's options of one call."""
    rest, chosen = dict(given), dict[str, Any]()
    for name, (option, convert) in _CALL.items():
        value = rest.pop(name, None)
        if value is not None:
            chosen[option] = convert(value)
    if "delay" in chosen and "run_at" in chosen:
        raise ConfigError("give countdown or eta, not both")
    check_always(rest, "the option")
    return chosen


def make_aware(when: datetime) -> datetime:
    """Return the time in UTC if it has no zone, as in Celery."""
    if not isinstance(when, datetime):
        raise ConfigError(
            f"eta must be a datetime, not {when!r:.60}; for seconds from now there is countdown"
        )
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)


def expires_at(value: float | datetime) -> float | datetime:
    return make_aware(value) if isinstance(value, datetime) else value


def invert_priority(value: int) -> int:
    """Convert a priority. For Celery on Redis 0 comes first and 9 last; for Forebay 9 comes first."""
    if type(value) is not int or not 0 <= value <= LOWEST:
        raise ConfigError(f"priority must be from 0, which comes first, to {LOWEST}, not {value!r:.60}")
    return -value


def check_max_retries(value: int | None) -> int:
    if type(value) is not int or not 0 <= value <= MAX_RETRIES:
        raise ConfigError(
            f"max_retries must be a number from 0 to {MAX_RETRIES}, not {value!r:.60}: a job that is "
            "tried for ever hides what is wrong"
        )
    return value


_CALL: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "countdown": ("delay", lambda value: value),
    "eta": ("run_at", make_aware),
    "expires": ("expires", expires_at),
    "queue": ("queue", str),
    "priority": ("priority", invert_priority),
    "task_id": ("id", str),
    "time_limit": ("timeout", lambda value: value),
}
