from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forebay.cli.commands.enqueue import parse_call_arguments
from forebay.domain.job import Job, JobId
from forebay.errors import ConfigError
from forebay.payload.codec import decode_call
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from tests.cli.command_runner import answer, call, program, program_answer, refusal
from tests.stores.contract import steps


def stored(reader: Reader, job_id: str) -> Job:
    return steps.look(reader, JobId(job_id))


@pytest.mark.shows("R-CLI-04")
def test_a_job_is_enqueued_by_hand(store: Store, reader: Reader) -> None:
    made = answer("enqueue", "mail.send", "ada@example.com", "times:=2", "subject=Hi there", ":=[1]")

    job = stored(reader, made["id"])
    assert (made["is_new"], made["queue"], made["task"]) == (True, "default", "mail.send")
    assert decode_call(job.payload) == (("ada@example.com", [1]), {"times": 2, "subject": "Hi there"})


def test_the_options_of_a_call_are_options_of_the_command(store: Store, reader: Reader) -> None:
    made = answer(
        *("enqueue", "t", "--queue", "mail", "--priority", "9", "--delay", "5m", "--timeout", "30s"),
        *("--retries", "7", "--lease", "1m", "--expires", "1h", "--deadline", "2h", "--unique-key", "u"),
        *("--idempotency-key", "o", "--idempotency-ttl", "1d", "--tag", "red", "--tag", "blue"),
        *("--metadata", "tenant=7"),
        *("--correlation-id", "c", "--id", "mine"),
    )

    job = stored(reader, made["id"])
    assert (job.id, job.queue, job.priority, job.state) == ("mine", "mail", 9, "scheduled")
    assert (job.timeout_ms, job.lease_ms, job.policy.max_retries) == (30_000, 60_000, 7)
    assert (job.unique_key, job.idempotency_key, job.tags) == ("u", "o", ("red", "blue"))
    assert (job.metadata, job.correlation_id) == ({"tenant": 7}, "c")
    assert job.expires_at is not None
    assert job.deadline_at is not None
    assert job.deadline_at > job.expires_at


def test_a_job_can_be_enqueued_for_an_instant(store: Store, reader: Reader) -> None:
    made = answer("enqueue", "t", "--run-at", "2090-01-01T12:00:00+00:00")

    assert stored(reader, made["id"]).run_at == 3_786_955_200_000


def test_a_taken_key_is_an_answer_or_an_error(store: Store) -> None:
    first = answer("enqueue", "t", "--unique-key", "u")
    second = answer("enqueue", "t", "--unique-key", "u")
    error = refusal("enqueue", "t", "--unique-key", "u", "--fail-on-conflict")

    assert (second["id"], second["is_new"]) == (first["id"], False)
    assert (error["kind"], error["status"]) == ("DuplicateJob", 5)
    assert "has the key already" in call("enqueue", "t", "--unique-key", "u").stdout


def test_a_closed_queue_refuses(store: Store) -> None:
    answer("queues", "create", "mail")
    answer("queues", "drain", "mail")

    assert refusal("enqueue", "t", "--queue", "mail")["status"] == 5


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("t", "n:=nope"), "n:=nope is not JSON"),
        (
            ("t", "a b=1"),
            "'a b' in 'a b=1' cannot name an argument; write a text with = in it as :=\"a b=1\"",
        ),
        (("t", "=x"), "'=x' has no name before =; write NAME=TEXT, or :=JSON"),
        (("t", "--args", "{}"), "--args must be a JSON list, not '{}'"),
        (("t", "--kwargs", "[]"), "--kwargs must be a JSON object, not '[]'"),
        (("t", "a=1", "--kwargs", '{"a": 2}'), "the argument a is given twice"),
        (("t", "--priority", "101"), "priority must be a whole number from -100 to 100"),
        (("t", "--delay", "soon"), "'soon' is not a duration"),
        (("t", "--run-at", "2030-01-01"), "'2030-01-01' has no time zone"),
        (("t", "--retry-policy", "nope"), "there is no retry preset 'nope'"),
        (("t", "--queue", "a:b"), "'a:b' cannot name a queue"),
        (("",), "task must be a text of 1 to 100 characters"),
        (("t", "--delay", "1m", "--run-at", "2090-01-01T00:00:00Z"), "not both"),
    ],
)
def test_bad_input_is_named_and_nothing_is_stored(
    words: tuple[str, ...], complaint: str, store: Store, reader: Reader
) -> None:
    error = refusal("enqueue", *words)

    assert error["status"] == 2
    assert complaint in error["message"]
    assert reader.counts() == {}


@pytest.mark.parametrize(
    ("values", "args", "kwargs"),
    [
        (["Ada", "5"], ["Ada", "5"], {}),
        ([":=5", ":=null", ':="x"'], [5, None, "x"], {}),
        (["n=5", "m:=5", "empty="], [], {"n": "5", "m": 5, "empty": ""}),
        (["url=a=b:=c"], [], {"url": "a=b:=c"}),
    ],
)
def test_values_are_texts_unless_they_say_json(
    values: list[str], args: list[Any], kwargs: dict[str, Any]
) -> None:
    assert parse_call_arguments(values, None, None) == (args, kwargs)


def test_values_follow_the_arguments_that_are_given_as_json() -> None:
    assert parse_call_arguments(["c", "d=1"], '["a", 2]', '{"k": null}') == (
        ["a", 2, "c"],
        {"k": None, "d": "1"},
    )
    with pytest.raises(ConfigError, match="--args is not JSON"):
        parse_call_arguments([], "[", None)


def test_with_an_app_the_task_s_own_options_hold(app_folder: Path) -> None:
    made = program_answer(app_folder, "enqueue", "tasks.greet", "Ada")
    shown = program_answer(app_folder, "jobs", "show", made["id"])

    assert made["queue"] == "mail"
    assert (shown["args"], shown["policy"]["max_retries"]) == (["Ada"], 0)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ("tasks.greet",),
            "task tasks.greet cannot be called like this: missing a required argument: 'name'",
        ),
        (("greet", "Ada"), "no task of this app is called 'greet'; did you mean tasks.greet?"),
        (("tasks.gret", "Ada"), "no task of this app is called 'tasks.gret'; did you mean tasks.greet?"),
        (("nothing.like.it",), "no task of this app is called 'nothing.like.it'; there are tasks."),
    ],
)
def test_with_an_app_a_call_that_cannot_succeed_is_refused(
    words: tuple[str, ...], complaint: str, app_folder: Path
) -> None:
    result = program(app_folder, "enqueue", *words)

    assert (result.returncode, result.stdout) == (2, "")
    assert complaint in result.stderr
    assert not (app_folder / "jobs.db").exists()


TYPED = """
from __future__ import annotations
from typing import TYPE_CHECKING
from forebay import Forebay

if TYPE_CHECKING:
    from nowhere import Thing

app = Forebay("sqlite:///jobs.db")


@app.task
def add(a: int, b: float | None = None, *more: int, dry: bool = False, note: str = "", **rest: int) -> None:
    pass


@app.task
def odd(thing: Thing, times: int = 1) -> None:
    pass
"""


@pytest.fixture
def typed_folder(folder: Path) -> Path:
    """A folder with tasks that want numbers."""
    (folder / "typed.py").write_text(TYPED)
    (folder / "forebay.toml").write_text('app = "typed:app"\n')
    return folder


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("1",), "a of typed.add is annotated int, and '1' is text; write :=1"),
        (("a=1",), "a of typed.add is annotated int, and '1' is text; write a:=1"),
        (("a:=1", "b=.5"), "b of typed.add is annotated float, and '.5' is text; write b:=JSON"),
        ((":=1", ":=2", "3"), "more of typed.add is annotated int, and '3' is text; write :=3"),
        (("a:=1", "dry=true"), "dry of typed.add is annotated bool, and 'true' is text; write dry:=true"),
        (("a:=1", "x=1"), "x of typed.add is annotated int, and '1' is text; write x:=1"),
    ],
)
def test_a_text_for_a_number_is_refused_with_the_way_out(
    words: tuple[str, ...], complaint: str, typed_folder: Path
) -> None:
    result = program(typed_folder, "enqueue", "typed.add", *words)

    assert (result.returncode, result.stdout) == (2, "")
    assert complaint in result.stderr
    assert not (typed_folder / "jobs.db").exists()


@pytest.mark.parametrize(
    "words",
    [("typed.add", ":=1", "b:=null", "dry:=true", "note=1"), ("typed.odd", "text", "times:=2")],
)
def test_values_that_fit_are_accepted(words: tuple[str, ...], typed_folder: Path) -> None:
    assert program_answer(typed_folder, "enqueue", *words)["is_new"] is True


@pytest.mark.parametrize("word", ["-1", "-0.5", "-x"])
def test_a_value_that_looks_like_an_option_gets_a_hint(word: str, store: Store) -> None:
    error = refusal("enqueue", "mytask", word)

    assert "A value that begins with - goes after --, as in `enqueue TASK -- -1`" in error["message"]
    assert answer("enqueue", "mytask", "--json", "--", word)["is_new"] is True
