"""Commands over the service: the key comes from the environment and is shown nowhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from forebay.domain.api_key import Grant
from forebay.domain.job import NewJob, QueueName
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.server_security import ServerSecurity
from forebay.stores.factory import open_engine
from tests.cli.command_runner import answer, call, refusal
from tests.service.live_server import serving

WRONG = f"fbk_absent.{'0123456789' * 4}"
GRANTS = {"admin": "admin", "crew": "consume:mail", "eye": "view"}


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, dict[str, str]]]:
    """A server that asks for keys, with a job in its store, and the keys."""
    engine = open_engine("memory://")
    with closing(engine.store()) as store, closing(engine.reader()) as reader:
        store.insert([NewJob(task="t", queue=QueueName("mail"))])
        made = ApiKeyAdmin(store, reader, actor="ann")
        tokens = {name: made.create(name, [Grant.parse(grant)]).token for name, grant in GRANTS.items()}
    with serving(engine, security=ServerSecurity(requires_keys=True)) as found:
        yield found.address, tokens


@pytest.fixture
def url(served: tuple[str, dict[str, str]]) -> str:
    return served[0]


@pytest.fixture
def become(served: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Take the key of this name."""
    return lambda name: monkeypatch.setenv("FOREBAY_API_KEY", served[1].get(name, WRONG))


def test_commands_look_and_control_with_the_key_of_the_environment(
    url: str, become: Callable[[str], None]
) -> None:
    become("admin")

    listed = answer("jobs", "list", "--url", url)
    paused = call("queues", "pause", "mail", "--url", url)
    resumed = call("queues", "resume", "mail", "--url", url)

    assert [job["queue"] for job in listed["jobs"]] == ["mail"]
    assert (paused.exit_code, resumed.exit_code) == (0, 0)


def test_who_shows_no_key_is_told_how_to_get_one(url: str) -> None:
    result = call("stats", "--url", url)

    assert result.exit_code == 2
    assert "Set FOREBAY_API_KEY to the token of an API key" in result.stderr


def test_what_a_key_does_not_allow_has_the_status_of_a_refusal(
    url: str, become: Callable[[str], None]
) -> None:
    become("crew")

    error = refusal("queues", "pause", "mail", "--url", url)

    assert (error["kind"], error["status"]) == ("Forbidden", 5)


def test_an_unknown_key_is_bad_input(url: str, become: Callable[[str], None]) -> None:
    become("absent")

    error = refusal("jobs", "list", "--url", url)

    assert (error["kind"], error["status"]) == ("Unauthenticated", 2)


@pytest.mark.parametrize(("name", "status"), [("admin", 1), ("eye", 1), ("crew", 0), ("absent", 2)])
def test_the_doctor_says_what_it_may_see_and_no_key(
    url: str, become: Callable[[str], None], served: tuple[str, dict[str, str]], name: str, status: int
) -> None:
    become(name)

    done = call("doctor", "--url", url)

    # The job that no worker runs is a problem to those who see it.
    assert done.exit_code == status, done.output
    assert ("it is a service, which maintains its store" in done.output) is (name != "absent")
    assert ("a key that has the role view for all queues" in done.output) is (name == "crew")
    assert "key = ***" in done.output
    assert not [one for one in (*served[1].values(), WRONG) if one.partition(".")[2] in done.output]
