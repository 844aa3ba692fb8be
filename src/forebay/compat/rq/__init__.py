"""RQ's common calls on a Forebay store, for programs that move from RQ.

    from forebay import Forebay
    from forebay.compat.rq import Queue, Retry  # instead of: from rq import Queue, Retry

    app = Forebay("sqlite:///jobs.db")
    queue = Queue("mail", connection=app)
    queue.learn(send)

    queue.enqueue(send, "ada@example.com", retry=Retry(max=3, interval=[10, 60]))

A worker does not import the function that a job names: it runs the functions that its app has learned, by
`learn` or by `@job`. Start it with `forebay worker shop:app`. RQ features that are not offered are refused by
name, with the alternative; nothing is silently ignored.
"""

from __future__ import annotations

from forebay.compat.rq.decorators import job
from forebay.compat.rq.job import Job, JobStatus, get_current_job
from forebay.compat.rq.options import Dependency, Retry
from forebay.compat.rq.queue import Queue

__all__ = ["Dependency", "Job", "JobStatus", "Queue", "Retry", "get_current_job", "job"]
