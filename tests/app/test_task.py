"""Tasks: called, enqueued, checked against their signature."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import copy
from functools import partial, wraps
from typing import Any, cast

import pytest

from forebay import ConfigError, Forebay, InvalidJob, PayloadError
from forebay.app.task import Task
from forebay.domain.job import NewJob
from forebay.domain.job_validation import MAX_PAYLOAD
from forebay.payload.codec import decode_call


def plain(to: str, subject: str = "Hi", copies: int = 1) -> str:
    """Send a letter."""
    return f"{to}: {subject} x {copies}"


async def later(to: str) -> str:
    await asyncio.sleep(0)
    return f"later to {to}"


def arguments(job: NewJob) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return decode_call(job.payload)


def loosely(task: Task[..., Any]) -> Any:
    """The task without its types, for calls that a type checker would refuse."""
    return cast(Any, task)


# ------------------------------------------------------------------ being a function


def test_calling_a_task_runs_it_here_and_stores_nothing(app: Forebay) -> None:
    task = app.task(plain)

    assert task("ada", copies=2) == "ada: Hi x 2"
    assert app.client.counts() == {}


def test_calling_an_async_task_gives_its_coroutine(app: Forebay) -> None:
    task = app.task(later)

    assert asyncio.run(task("ada")) == "later to ada"
    assert task.is_async


@pytest.mark.shows("R-JOB-06", "R-SER-03")
def test_a_task_is_called_by_its_module_and_its_own_name(app: Forebay) -> None:
    task = app.task(plain)

    assert task.name == f"{plain.__module__}.plain"
    assert task.job("ada").task == task.name


def test_a_task_may_be_given_a_name(app: Forebay) -> None:
    assert app.task(name="mail.send")(plain).job("ada").task == "mail.send"


@pytest.mark.shows("R-JOB-07")
@pytest.mark.parametrize("name", ["n" * 101, "a\nb"])
def test_a_name_that_no_task_can_have_is_refused(app: Forebay, name: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        app.task(name=name)(plain)

    assert caught.value.field == "task"


def test_a_task_looks_like_its_function(app: Forebay) -> None:
    task = app.task(plain)

    assert (task.__name__, task.__doc__, task.__module__) == (  # type: ignore[attr-defined]  # set by update_wrapper
        "plain",
        "Send a letter.",
        plain.__module__,
    )
    assert task.__wrapped__ is plain  # type: ignore[attr-defined]  # set by update_wrapper


def test_attributes_of_the_function_are_kept_but_not_for_those_of_the_task(app: Forebay) -> None:
    def send() -> None: ...

    send.colour = "red"  # type: ignore[attr-defined]  # what frameworks do
    send.name = "not this"  # type: ignore[attr-defined]
    send.queue = "nor this"  # type: ignore[attr-defined]

    task = app.task(name="send", queue="mail")(send)

    assert (loosely(task).colour, task.name, task.queue) == ("red", "send", "mail")


@pytest.mark.parametrize("func", [partial(plain, "ada"), cast(Any, "mail.send")])
def test_what_has_no_name_of_its_own_must_be_given_one(app: Forebay, func: Callable[[], str]) -> None:
    with pytest.raises(ConfigError, match=r"no name of its own; give it one with app\.task\(name="):
        app.task(func)


def test_a_function_that_hides_its_signature_is_refused(app: Forebay) -> None:
    with pytest.raises(ConfigError, match=r"the arguments of .* cannot be read"):
        app.task(max)  # several signatures, so none can be told on any Python


def test_a_partial_function_with_a_name_is_a_task(app: Forebay) -> None:
    task = app.task(name="to_ada")(partial(plain, "ada"))

    assert task.job(copies=2).task == "to_ada"
    assert task() == "ada: Hi x 1"


def test_two_tasks_of_one_name_are_refused_and_the_first_stays(app: Forebay) -> None:
    first = app.task(name="send")(plain)

    with pytest.raises(ConfigError, match=r"two tasks are called 'send': .*plain and .*later"):
        app.task(name="send")(later)

    assert app.registry["send"] is first


def test_two_apps_may_have_tasks_of_one_name(app: Forebay) -> None:
    other = Forebay("memory://")

    app.task(name="send")(plain)
    other.task(name="send")(later)

    assert (list(app.registry), list(other.registry)) == (["send"], ["send"])


# ------------------------------------------------------------------ arguments


@pytest.mark.shows("R-JOB-08")
def test_arguments_are_stored_as_they_were_given(app: Forebay) -> None:
    assert arguments(app.task(plain).job("ada", copies=3)) == (("ada",), {"copies": 3})


@pytest.mark.shows("R-EDGE-26")
def test_keyword_arguments_may_be_called_like_options(app: Forebay) -> None:
    def book(*, priority: int, id: str, queue: str, delay: int, timeout: int, retries: int) -> None: ...

    given: Any = {"priority": 1, "id": "x", "queue": "q", "delay": 2, "timeout": 3, "retries": 4}
    task = app.task(name="book")(book)

    job = task.using(priority=9, id="own", queue="mail").job(**given)

    assert arguments(job) == ((), given)
    assert (job.priority, job.id, job.queue) == (9, "own", "mail")
    assert task.enqueue(**given).refresh().queue == "default"


@pytest.mark.shows("R-EDGE-26")
@pytest.mark.parametrize(
    "name", ["self", "args", "kwargs", "task", "func", "call", "jobs", "options", "name"]
)
def test_keyword_arguments_may_be_called_like_our_own(app: Forebay, name: str) -> None:
    def take(**anything: int) -> dict[str, int]:
        return anything

    task = app.task(name="take")(take)
    given: Any = {name: 1}

    async def enqueue() -> NewJob:
        await task.enqueue_async(**given)
        return task.using(priority=1).job(**given)

    assert task.enqueue(**given).is_new
    assert arguments(asyncio.run(enqueue())) == ((), given)
    assert task(**given) == given


def positional_only(a: int, b: int = 2, /) -> None: ...


def keyword_only(a: int, *, b: int, c: int = 3) -> None: ...


def many(a: int, *rest: int) -> None: ...


def anything(a: int, **rest: int) -> None: ...


def mixed(a: int, /, b: int, *rest: int, c: int, **others: int) -> None: ...


def nothing() -> None: ...


FITTING: list[Any] = [
    (plain, ("ada",), {}),
    (plain, ("ada", "Hi"), {"copies": 2}),
    (plain, (), {"to": "ada"}),
    (plain, (), {"copies": 2, "to": "ada"}),
    (positional_only, (1,), {}),
    (positional_only, (1, 2), {}),
    (keyword_only, (1,), {"b": 2}),
    (keyword_only, (), {"a": 1, "b": 2, "c": 3}),
    (many, (1, 2, 3, 4), {}),
    (anything, (1,), {"x": 2, "y": 3}),
    (mixed, (1, 2, 3), {"c": 4, "a": 5}),
    (nothing, (), {}),
]
MISFITS: list[Any] = [
    (plain, (), {}, "'to'"),
    (plain, (), {"subject": "Hi"}, "'to'"),
    (plain, ("ada",), {"to": "ada"}, "'to'"),
    (plain, ("ada",), {"colour": "red"}, "'colour'"),
    (plain, ("ada", "Hi", 1, 2), {}, "too many positional arguments"),
    (positional_only, (), {}, "'a'"),
    (positional_only, (), {"a": 1}, "'a'"),
    (positional_only, (1,), {"b": 2}, "'b'"),
    (keyword_only, (1,), {}, "'b'"),
    (keyword_only, (1, 2), {}, "too many positional arguments"),
    (many, (), {}, "'a'"),
    (many, (1,), {"rest": 2}, "'rest'"),
    (anything, (), {"x": 1}, "'a'"),
    (mixed, (1, 2), {}, "'c'"),
    (mixed, (1,), {"c": 3}, "'b'"),
    (nothing, (1,), {}, "too many positional arguments"),
    (nothing, (), {"x": 1}, "'x'"),
]


@pytest.mark.parametrize(("func", "args", "kwargs"), FITTING)
def test_arguments_that_fit_the_signature_are_taken(
    app: Forebay, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    assert arguments(app.task(func).job(*args, **kwargs)) == (args, kwargs)


@pytest.mark.shows("R-ENQ-21", "R-ENQ-31")
@pytest.mark.parametrize(("func", "args", "kwargs", "named"), MISFITS)
def test_arguments_that_do_not_fit_are_refused_with_the_name_of_the_culprit(
    app: Forebay, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], named: str
) -> None:
    task = app.task(func)

    with pytest.raises(PayloadError, match=rf"{func.__name__} cannot be called like this: .*{named}"):
        loosely(task).enqueue(*args, **kwargs)

    assert app.client.counts() == {}


def test_a_wrapped_function_is_checked_by_its_own_signature(app: Forebay) -> None:
    @wraps(plain)
    def timed(*args: Any, **kwargs: Any) -> str:
        return plain(*args, **kwargs)

    task = app.task(name="timed")(timed)

    with pytest.raises(PayloadError, match="'colour'"):
        loosely(task).job("ada", colour="red")


# ------------------------------------------------------------------ what cannot be stored


class Connection:
    """Something that is bound to this process."""


def take(value: Any = None, *more: Any, **named: Any) -> None: ...


UNSTORABLE: list[Any] = [
    ((Connection(),), {}, "args[0]"),
    ((1, [2, {"deep": {"conn": Connection()}}]), {}, 'args[1][1]["deep"]["conn"]'),
    ((), {"value": lambda: None}, 'kwargs["value"]'),
    ((), {"named": [1, Connection()]}, 'kwargs["named"][1]'),
]


@pytest.mark.shows("R-ENQ-29", "R-ENQ-30", "R-EDGE-20", "R-SER-24")
@pytest.mark.parametrize(("args", "kwargs", "path"), UNSTORABLE)
def test_what_cannot_be_stored_is_named_with_its_path(
    app: Forebay, args: tuple[Any, ...], kwargs: dict[str, Any], path: str
) -> None:
    task = app.task(take)

    with pytest.raises(PayloadError) as caught:
        task.enqueue(*args, **kwargs)

    assert caught.value.field == path
    assert str(caught.value).startswith(f"{path}: ")
    assert app.client.counts() == {}


@pytest.mark.shows("R-ENQ-22", "R-ENQ-23", "R-EDGE-19")
def test_a_payload_at_the_limit_is_taken_and_one_byte_more_is_refused(app: Forebay) -> None:
    task = app.task(take)
    room = MAX_PAYLOAD - len(task.job("").payload)

    assert len(task.enqueue("x" * room).refresh().payload) == MAX_PAYLOAD
    with pytest.raises(PayloadError, match=r"limit is 1,048,576, and args\[1\] is the largest") as caught:
        task.enqueue("small", "x" * room)

    assert caught.value.field == "args[1]"
    assert app.client.counts()[task.job().queue].pending == 1


@pytest.mark.shows("R-EDGE-21", "R-ENQ-07")
def test_one_bad_job_leaves_nothing_of_its_batch_behind(app: Forebay) -> None:
    task = app.task(take)

    with pytest.raises(PayloadError):
        app.enqueue_many([task.job("good"), task.job("x" * MAX_PAYLOAD)])

    assert app.client.counts() == {}


@pytest.mark.shows("R-ENQ-25")
@pytest.mark.parametrize(
    ("args", "kwargs", "field"),
    [(tuple(range(101)), {}, "args"), ((), {f"k{n}": n for n in range(51)}, "kwargs")],
)
def test_too_many_arguments_are_refused(
    app: Forebay, args: tuple[Any, ...], kwargs: dict[str, Any], field: str
) -> None:
    with pytest.raises(PayloadError) as caught:
        app.task(take).enqueue(*args, **kwargs)

    assert caught.value.field == field


@pytest.mark.parametrize("word", ["delay", "apply_async"])
def test_the_words_of_celery_are_no_attributes_and_the_error_names_ours(app: Forebay, word: str) -> None:
    task: Any = app.task(name="send")(lambda: None)

    with pytest.raises(
        AttributeError, match=rf"no attribute '{word}'; write task\.enqueue\(.*compat\.celery"
    ):
        getattr(task, word)
    assert not hasattr(task, word)


def test_an_attribute_that_a_task_has_not_is_refused_as_everywhere(app: Forebay) -> None:
    task: Any = app.task(name="send")(lambda: None)

    with pytest.raises(AttributeError, match=r"^'Task' object has no attribute 'colour'$") as refusal:
        _ = task.colour
    assert (refusal.value.name, refusal.value.obj) == ("colour", task)
    assert not hasattr(task, "colour")
    assert copy(task).name == "send"
