"""`python manage.py forebay ...`: the command line, for the store and the tasks of this project."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from forebay.cli.main import main

if TYPE_CHECKING:  # Django has no types

    class BaseCommand:
        """The part of Django's class that is used here."""
else:
    from django.core.management.base import BaseCommand

APP = "forebay.integrations.django.worker_app:app"


class Command(BaseCommand):
    """All commands of `forebay`, for the app of this project."""

    help = "Run a worker of this project, inspect and change its jobs: all commands of `forebay`."

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the command line with unparsed options: `forebay` has a parser of its own."""
        sys.argv = [f"{os.path.basename(argv[0])} {argv[1]}", *argv[2:]]
        main(args=_with_app(argv[2:]), prog_name=sys.argv[0])

    def handle(self, *args: Any, **options: Any) -> None:
        """Run `call_command("forebay", "migrate")`; options are given on the command line only."""
        main(args=_with_app([*args]), prog_name="forebay", standalone_mode=False)

    def add_arguments(self, parser: Any) -> None:
        """Accept all words as they are."""
        parser.add_argument("args", nargs="*")


def _with_app(args: list[str]) -> list[str]:
    os.environ.setdefault("FOREBAY_APP", APP)
    return ["worker", APP, *args[1:]] if args[:1] == ["worker"] else args
