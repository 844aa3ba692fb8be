"""Jobs in the application context of a Flask app."""

from __future__ import annotations

from flask import Flask, current_app, g, has_app_context

from forebay import Forebay
from forebay.integrations.flask import run_within

WITHIN = 60.0


def web_app() -> Flask:
    app = Flask("shop")
    app.config["GREETING"] = "Hello"
    return app


def test_a_job_sees_the_app_as_a_view_does() -> None:
    with Forebay("memory://") as queue:
        run_within(queue, web_app())

        @queue.task
        def greet(name: str) -> str:
            assert "name" not in g  # of another job
            g.name = name
            return f"{current_app.config['GREETING']}, {g.name}"

        @queue.task
        async def greet_from_the_loop(name: str) -> str:
            return f"{current_app.config['GREETING']}, {name}"

        with queue.run_worker(threads=1):
            assert greet.enqueue("Ada").result(timeout=WITHIN) == "Hello, Ada"
            assert greet.enqueue("Bob").result(timeout=WITHIN) == "Hello, Bob"
            assert greet_from_the_loop.enqueue("Eve").result(timeout=WITHIN) == "Hello, Eve"
    assert not has_app_context()


def test_what_an_app_puts_in_order_after_a_request_is_put_in_order_after_a_job() -> None:
    app = web_app()
    ended: list[str] = []
    app.teardown_appcontext(lambda error: ended.append(repr(error)))
    with Forebay("memory://") as queue:
        run_within(queue, app)

        @queue.task(name="fail", retries=0)
        def fail() -> None:
            raise ValueError("no")

        with queue.run_worker(threads=1):
            assert fail.enqueue().wait(timeout=WITHIN).errors
    assert ended == ["ValueError('no')"]
