"""Which of Celery's words are understood, in ours; all others are refused with the way out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, Final, NoReturn

from forebay.domain.retry import MAX_RETRIES
from forebay.errors import ConfigError
from forebay.facades.not_offered import NotOffered

LOWEST: Final = 9
# What is refused, with what to do instead.
_WAYS_OUT: Final = {
    "s": "put jobs together with task.job(...) and forebay's workflow, chain and group",
    "si": "put jobs together with task.job(...) and forebay's workflow, chain and group",
    "signature": "put jobs together with task.job(...) and forebay's workflow, chain and group",
    "link": "use a workflow, or enqueue a follow-up in the task",
    "link_error": "use a workflow with on_failure, or app.forebay.on_error",
    "chord": "use a workflow: chain(group(...), last)",
    "soft_time_limit": "use soft_timeout of a task of forebay and ask current_job().is_overdue",
    "rate_limit": "set a limit: forebay limits set",
    "beat_schedule": "declare schedules: app.forebay.cron and app.forebay.every",
    "apply": "call the task itself, or use forebay.testing",
    "update_state": "use current_job().progress",
    "autodiscover_tasks": "import the modules of your tasks",
    "start": "run `forebay worker`",
    "worker_main": "run `forebay worker`",
    "config_from_object": "set app.conf, name by name",
    "control": "use app.forebay, `forebay workers` and `forebay jobs`",
    "include": "import the modules of your tasks",
    "broker_url": "say broker=... to Celery()",
    "broker_connection_retry_on_startup": "leave it out: a worker waits for its store by itself",
    "worker_prefetch_multiplier": "leave it out: a worker takes what it has room for",
    "task_always_eager": "use forebay.testing",
    "task_soft_time_limit": "use soft_timeout of a task of forebay and ask current_job().is_overdue",
    "result_expires": "finished jobs are kept as long as their queue says: `forebay queues configure`",
    "result_backend": "results are kept in the store: leave it out",
    "backend": "results are kept in the store: leave it out",
}
# Settings and options that are so here anyway: other values are refused.
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


def refuse(name: str, where: str) -> NoReturn:
    """Say that this is not offered, and the way out."""
    way = _WAYS_OUT.get(name, "see docs/guide/moving-in.md for what there is")
    raise NotOffered(f"{where} {name} of Celery is not offered here: {way}")


def check_always(given: Mapping[str, Any], where: str) -> None:
    for name, value in given.items():
        if name not in _ALWAYS:
            refuse(name, where)
        if value not in _ALWAYS[name]:
            way = f": {_WAYS_OUT[name]}" if name in _WAYS_OUT else ""
            raise ConfigError(f"{where} {name} is always {_ALWAYS[name][0]!r} here, not {value!r:.60}{way}")


class Conf:
    """The settings that are offered. They hold from the first use of the app on; from then on they stay."""

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


def call_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of one call in our words."""
    rest, chosen = dict(given), dict[str, Any]()
    for name, (ours, made) in _CALL.items():
        value = rest.pop(name, None)
        if value is not None:
            chosen[ours] = made(value)
    if "delay" in chosen and "run_at" in chosen:
        raise ConfigError("give countdown or eta, not both")
    check_always(rest, "the option")
    return chosen


def aware(when: datetime) -> datetime:
    """A time without a zone is UTC, as in Celery."""
    if not isinstance(when, datetime):
        raise ConfigError(
            f"eta must be a datetime, not {when!r:.60}; for seconds from now there is countdown"
        )
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)


def expires_at(value: float | datetime) -> float | datetime:
    return aware(value) if isinstance(value, datetime) else value


def turned_priority(value: int) -> int:
    """0 comes first and 9 last, as in Celery on Redis; ours is the other way round."""
    if type(value) is not int or not 0 <= value <= LOWEST:
        raise ConfigError(f"priority must be from 0, which comes first, to {LOWEST}, not {value!r:.60}")
    return -value


def whole_retries(value: int | None) -> int:
    if type(value) is not int or not 0 <= value <= MAX_RETRIES:
        raise ConfigError(
            f"max_retries must be a number from 0 to {MAX_RETRIES}, not {value!r:.60}: a job that is "
            "tried for ever hides what is wrong"
        )
    return value


_CALL: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "countdown": ("delay", lambda value: value),
    "eta": ("run_at", aware),
    "expires": ("expires", expires_at),
    "queue": ("queue", str),
    "priority": ("priority", turned_priority),
    "task_id": ("id", str),
    "time_limit": ("timeout", lambda value: value),
}
