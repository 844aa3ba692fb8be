"""The Django project among the examples: its own tests, and the commands of its README."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.stores import postgres_support

SHOP = Path(__file__).parents[2] / "examples" / "django_shop"
WITHIN = 400.0  # guards a hang alone


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "SHOP_DATABASE": str(tmp_path / "shop.db"),
        "SHOP_TEST_DATABASE": str(tmp_path / "test.db"),
    }


def manage(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=SHOP,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )


TESTS = "Ran 26 tests"


def test_the_tests_of_the_project_pass(environment: dict[str, str]) -> None:
    done = manage(environment, "test", "--noinput")
    assert done.returncode == 0, done.stderr
    assert TESTS in done.stderr


@pytest.fixture
def on_postgres() -> Iterator[dict[str, str]]:
    server = postgres_support.server()
    name = f"shop{os.getpid()}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"create database {name}")
        yield {
            **os.environ,
            "SHOP_POSTGRES_PORT": str(server.port),
            "SHOP_DATABASE": name,
            "SHOP_TEST_DATABASE": f"test_{name}",
        }
        connection.execute(f"drop database {name}")
        left = connection.execute("select datname from pg_database where datname like 'test_shop%'")
        assert left.fetchall() == []


# In parallel the same tests run, and the database is copied besides.
@pytest.mark.parametrize(
    "words",
    [
        pytest.param((), marks=pytest.mark.extended, id="alone"),
        pytest.param(("--parallel", "2"), id="parallel"),
    ],
)
def test_the_tests_of_the_project_pass_on_postgresql_and_leave_no_database(
    on_postgres: dict[str, str], words: tuple[str, ...]
) -> None:
    done = manage(on_postgres, "test", "--noinput", *words)
    assert done.returncode == 0, done.stderr
    assert TESTS in done.stderr


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_the_tables_for_jobs_come_with_the_migrations_of_django(
    engine: str, request: pytest.FixtureRequest
) -> None:
    fixture = "environment" if engine == "sqlite" else "on_postgres"
    environment: dict[str, str] = request.getfixturevalue(fixture)

    for _ in range(2):  # a second time nothing changes
        done = manage(environment, "migrate", "-v", "0")
        assert done.returncode == 0, done.stderr

    script = "from shop.orders import place; print(place(11, 'ada@example.com'))"
    assert manage(environment, "shell", "-v", "0", "-c", script).stdout.strip()


def test_the_command_line_knows_the_project(environment: dict[str, str]) -> None:
    assert manage(environment, "forebay", "migrate").returncode == 0
    order = "from shop.orders import place; print(place(11, 'ada@example.com'))"
    job = manage(environment, "shell", "-c", order).stdout.split()[-1]
    worker = subprocess.Popen(
        [sys.executable, "manage.py", "forebay", "worker", "--queues", "mail"], cwd=SHOP, env=environment
    )
    try:
        done = manage(environment, "forebay", "jobs", "wait", job, "--timeout", str(WITHIN))
        assert done.returncode == 0, done.stderr
    finally:
        worker.terminate()
        assert worker.wait(WITHIN) == 0
    assert f"{job}  mail" in manage(environment, "forebay", "jobs", "list").stdout


def test_a_database_of_django_is_found_as_django_finds_it(environment: dict[str, str]) -> None:
    script = (
        "from django.db import connections\n"
        "from forebay.integrations.django.backend import url_of\n"
        "found = connections['default'].settings_dict\n"
        "print(url_of('default').startswith('sqlite:////'))\n"
        "found.update(NAME='/tmp/a b#c.db')\n"
        "print(url_of('default'))\n"
        "found.update(ENGINE='django.db.backends.postgresql', NAME='shop', HOST='/var/run', USER='me')\n"
        "found.update(PASSWORD='a@b', OPTIONS={'sslmode': 'verify-full', 'pool': True})\n"
        "print(url_of('default'))\n"
        "found.update(ENGINE='django.db.backends.sqlite3', NAME=':memory:')\n"
        "try:\n"
        "    url_of('default')\n"
        "except ValueError as exc:\n"
        "    print(exc)\n"
    )
    done = manage(environment, "shell", "-v", "0", "-c", script)
    assert done.stdout.splitlines() == [
        "True",
        "sqlite:////tmp/a%20b%23c.db",
        "postgresql:///shop?user=me&password=a%40b&host=%2Fvar%2Frun&sslmode=verify-full",
        "the database 'default' is in the memory of one connection, where no job can be kept; "
        "for tests give DATABASES['default']['TEST']['NAME'] a file",
    ]


def test_an_option_that_is_not_known_is_refused(environment: dict[str, str]) -> None:
    script = (
        "from forebay.integrations.django.backend import ForebayBackend\n"
        "both = {'url': 'memory://', 'database': 'default'}\n"
        "for options in ({'adress': 1}, {}, both, {'database': 'no'}):\n"
        "    try:\n"
        "        ForebayBackend('default', {'OPTIONS': options}).app\n"
        "    except ValueError as exc:\n"
        "        print(exc)\n"
    )
    done = manage(environment, "shell", "-v", "0", "-c", script)
    assert done.stdout.splitlines() == [
        "TASKS['default'] has options that Forebay does not know: adress",
        "TASKS['default'] needs one of the options 'url' and 'database'",
        "TASKS['default'] needs one of the options 'url' and 'database'",
        "DATABASES has no 'no', which the option 'database' of TASKS names",
    ]
