"""The Django project among the examples: its own tests, and the commands of its README."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHOP = Path(__file__).parents[2] / "examples" / "django_shop"
WITHIN = 120.0


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


def test_the_tests_of_the_project_pass(environment: dict[str, str]) -> None:
    done = manage(environment, "test", "--noinput")
    assert done.returncode == 0, done.stderr
    assert "Ran 23 tests" in done.stderr


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
        "from forebay.integrations.django.backend import _url_of\n"
        "found = connections['default'].settings_dict\n"
        "print(_url_of('default').startswith('sqlite:////'))\n"
        "found.update(NAME='/tmp/a b#c.db')\n"
        "print(_url_of('default'))\n"
        "found.update(ENGINE='django.db.backends.postgresql', NAME='shop', HOST='/var/run', USER='me')\n"
        "found.update(PASSWORD='a@b', OPTIONS={'sslmode': 'verify-full', 'pool': True})\n"
        "print(_url_of('default'))\n"
        "found.update(ENGINE='django.db.backends.sqlite3', NAME=':memory:')\n"
        "try:\n"
        "    _url_of('default')\n"
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
