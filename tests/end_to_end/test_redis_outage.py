"""A worker goes on by itself after its Redis server was stopped, killed and started again."""

from __future__ import annotations

import signal
import threading

import pytest

from forebay import Forebay
from tests.redis_server import RedisServer

JOBS = 200


@pytest.mark.shows("R-SWEEP-22", "R-STORE-49")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_goes_on_when_its_server_is_back_and_no_job_is_lost(how: int) -> None:
    server = RedisServer(appendonly="yes", appendfsync="always")
    half, stopped = threading.Event(), threading.Event()
    done = []
    try:
        with Forebay(server.url()) as app:

            @app.task(name="count", max_crashes=20)
            def count(number: int) -> int:
                done.append(number)
                if len(done) >= JOBS // 2:
                    half.set()
                    assert stopped.wait(120)  # so jobs end while there is no server
                return number

            jobs = app.enqueue_many([count.job(number) for number in range(JOBS)])
            with app.run_worker(threads=2):
                assert half.wait(120)
                server.stop(how)
                stopped.set()
                server.start()

                assert [job.result(timeout=120) for job in jobs] == list(range(JOBS))
            assert app.client.read(lambda reader: reader.health()).problems == ()
        assert set(done) == set(range(JOBS))
    finally:
        server.close()
