"""Flask: jobs in an application context.

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
    """Let each job run in an application context of this app. Functions registered by `teardown_appcontext`
    are called after each attempt."""
    return queue.middleware(lambda _: app.app_context())
