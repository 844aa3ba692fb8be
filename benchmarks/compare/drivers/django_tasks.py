"""Django's tasks with the backend on its database; a worker looks for jobs once a second."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlparse

import django
from django.conf import settings
from django.core.management import call_command

URL = urlparse(os.environ["COMPARE_URL"])
if not settings.configured:
    settings.configure(
        SECRET_KEY="x",  # noqa: S106
        USE_TZ=True,
        INSTALLED_APPS=["django_tasks", "django_tasks_db"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": URL.path[1:],
                "USER": URL.username,
                "HOST": URL.hostname,
                "PORT": URL.port,
            }
        },
        TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
    )
    django.setup()

from benchmarks.compare.drivers.django_task import noop  # noqa: E402 - needs the settings


def setup() -> None:
    call_command("migrate", verbosity=0)


def enqueue(argument: dict[str, Any]) -> None:
    noop.enqueue(argument)


if __name__ == "__main__":
    call_command("db_worker", startup_delay=False, verbosity=0)
