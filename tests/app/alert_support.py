"""What tests of alerts arrange and ask."""

from __future__ import annotations

from forebay import Forebay
from forebay.clock import Clock
from forebay.domain.alert import AlertTransition
from forebay.domain.default_alert_rules import DEFAULT_ALERT_RULES
from forebay.domain.job import NewJob, QueueName
from forebay.domain.job_query import JobQuery

HOOK = "http://127.0.0.1:9/"


def without_rules(clock: Clock) -> Forebay:
    """An app in memory, with no rule but those of a test: what is not about stores is tried on one."""
    app = Forebay("memory://", clock=clock)
    for rule_id in DEFAULT_ALERT_RULES:
        app.alerts.update_rule(rule_id, enabled=False)
    return app


def put(app: Forebay, jobs: int, queue: str = "default") -> None:
    app.enqueue_many([NewJob(task="t", queue=QueueName(queue)) for _ in range(jobs)])


def take_away(app: Forebay, queue: str = "default") -> None:
    page = app.search(JobQuery(queues=(QueueName(queue),)), limit=1_000)
    app.client.write(lambda store: store.cancel([job.id for job in page.jobs]))


def steps(app: Forebay) -> list[AlertTransition]:
    """What a look at all rules brings."""
    return [one.step for one in app.alerts.evaluate().notices]
