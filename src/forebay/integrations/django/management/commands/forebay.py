"""`python manage.py forebay ...`: the command line, for the store and the tasks of this project."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand

from forebay.cli.main import main

APP = "forebay.integrations.django.worker:app"


class Command(BaseCommand):  # type: ignore[misc]
    """Everything that `forebay` can do, without naming the app."""

    help = "Run a worker of this project, look at its jobs, steer them: what `forebay` does."

    def run_from_argv(self, argv: list[str]) -> None:
        """As Django calls it, with the options left to our own parser."""
        words = argv[2:]
        if words[:1] == ["worker"]:
            words = ["worker", APP, *words[1:]]
        os.environ.setdefault("FOREBAY_APP", APP)
        sys.argv = [f"{os.path.basename(argv[0])} {argv[1]}", *words]
        main(args=words, prog_name=sys.argv[0])

    def handle(self, *args: Any, **options: Any) -> None:
        """For `call_command("forebay", "jobs", "list")`."""
        os.environ.setdefault("FOREBAY_APP", APP)
        main(args=list(args), prog_name="forebay", standalone_mode=False)

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("args", nargs="*")
