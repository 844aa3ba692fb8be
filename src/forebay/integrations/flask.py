"""Application contexts of Flask for jobs.

    queue = Forebay("sqlite:///jobs.db")
    run_within(queue, app)

The task functions may then use `current_app`, the extensions and the database session of the app, as a view
does: each job runs in an application context of its own.
"""

from __future__ import annotations

from flask import Flask

from forebay.app.app import Forebay
from forebay.app.middleware import Middleware


def run_within(queue: Forebay, app: Flask) -> Middleware:
    """Run each job in an application context of this app. Functions that are registered by
    `teardown_appcontext` run after each attempt."""
    return queue.middleware(lambda _: app.app_context())
