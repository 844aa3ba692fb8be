"""A consumer before and after a fork: the child's is another one, and never uses its parent's handle."""

from __future__ import annotations

from pathlib import Path

from tests.stores.sqlite_support import program

OPENING = """
from threading import Thread, Event
from forebay import Forebay, StoreError

def child(work):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            say(type(error).__name__, error)
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def noted(url):
    app = Forebay(url)
    app.task(name="note")(lambda: None)
    for _ in range(3):
        app.enqueue("note")
    return app
"""


def heard(script: str, path: Path, lines: int) -> list[str]:
    with program(OPENING + script, path) as forking:
        output = [forking.hear() for _ in range(lines)]
        assert forking.wait() == 0
    return output


def test_on_a_file_that_was_open_the_child_is_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    script = """
app = noted(f"sqlite:///{path}")
consumer = app.consumer()
[first] = consumer.claim()
consumer.check_leases([first])
say(child(lambda: consumer.claim()))
say(child(lambda: consumer.complete(first)))
say(child(lambda: consumer.check_leases([first])))
say(child(lambda: consumer.close()))
say(consumer.complete(first), len(consumer.claim(5)))
"""
    output = heard(script, tmp_path / "jobs.db", 8)

    refusals, codes = output[0:6:2], output[1:6:2]
    assert all(line.startswith("StoreUnusable") and "forked" in line for line in refusals)
    assert codes == ["1"] * 3
    assert output[6:] == ["0", "True 2"]


def test_a_consumer_that_was_not_used_before_the_fork_works_in_the_child(tmp_path: Path) -> None:
    script = """
app = noted(f"sqlite:///{path}")
consumer = app.consumer()
parent = consumer.id

def work():
    [job] = consumer.claim()
    say(consumer.complete(job), consumer.id != parent, job.worker == consumer.id)
    consumer.close()

say(child(work))
say(len(consumer.claim(5)), consumer.id == parent)
"""
    assert heard(script, tmp_path / "jobs.db", 3) == ["True True True", "0", "2 True"]


def test_what_the_parent_has_claimed_stays_its_own(tmp_path: Path) -> None:
    script = """
app = noted("memory://")
consumer = app.consumer()
[job] = consumer.claim()
say(child(lambda: say(consumer.complete(job), *consumer.check_leases([job]), *consumer.renew([job]))))
say(consumer.complete(job))
"""
    assert heard(script, tmp_path / "jobs.db", 3) == ["False False False", "0", "True"]


def test_a_fork_in_the_middle_of_a_claim_leaves_the_child_no_locked_door(tmp_path: Path) -> None:
    script = """
app = noted("memory://")
consumer = app.consumer()
reached, opened = Event(), Event()

class Slow:
    def __init__(self, store):
        self._store = store
    def __getattr__(self, name):
        return getattr(self._store, name)
    def settle_and_claim(self, *args, **options):
        reached.set()
        opened.wait(120)
        return self._store.settle_and_claim(*args, **options)

consumer._store = Slow(app.engine.store())
holder = Thread(target=consumer.claim)
holder.start()
reached.wait(120)
say(child(lambda: say(len(consumer.claim(5)))))
opened.set()
holder.join()
"""
    assert heard(script, tmp_path / "jobs.db", 2) == ["3", "0"]
