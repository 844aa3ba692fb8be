"""`python manage.py test`: the tasks of the shop as Django's tests see them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.test import TransactionTestCase
from django.utils import timezone

from forebay.integrations.django.backend import django_app
from forebay.integrations.django.tasks_api import base, exceptions, invalid_task, signals
from shop.orders import place
from shop.tasks import NoPaper, count, print_label, send_receipt

WITHIN = 60.0
Status = base.TaskResultStatus


class Tasks(TransactionTestCase):
    """Each test has a store of its own: jobs are in the database of the tests."""

    def setUp(self) -> None:
        self.app = django_app()
        self.app.client.write(lambda store: store.migrate())

    def run_all(self, *ids: str) -> None:
        with self.app.working(queues=["default", "mail"]):
            for job_id in ids:
                self.app.job(job_id).wait(timeout=WITHIN)

    def test_a_task_runs_and_its_result_is_known(self) -> None:
        sent = send_receipt.enqueue(11, to="ada@example.com")
        self.assertEqual((sent.status, sent.attempts), (Status.READY, 0))
        self.assertEqual(send_receipt.get_result(sent.id).enqueued_at, sent.enqueued_at)

        self.run_all(sent.id)

        sent.refresh()
        self.assertEqual(sent.return_value, "receipt of order 11 sent to ada@example.com")
        self.assertEqual((sent.status, sent.attempts, sent.errors), (Status.SUCCESSFUL, 1, []))
        self.assertLessEqual(sent.enqueued_at, sent.started_at)
        self.assertLessEqual(sent.started_at, sent.finished_at)
        self.assertEqual(send_receipt.get_result(sent.id).kwargs, {"to": "ada@example.com"})

    def test_a_coroutine_runs(self) -> None:
        counted = count.enqueue([1, 2, 3])
        self.run_all(counted.id)
        self.assertEqual(count.get_result(counted.id).return_value, 6)

    def test_an_attempt_that_fails_is_told_and_made_again(self) -> None:
        label = print_label.using(priority=5).enqueue(7)
        self.run_all(label.id)
        label.refresh()
        self.assertEqual(label.return_value, "label 7 at attempt 2")
        [error] = label.errors
        self.assertIs(error.exception_class, NoPaper)
        self.assertIn("no paper for order 7", error.traceback)
        self.assertEqual(len(label.worker_ids), 2)

    def test_a_transaction_that_is_undone_leaves_no_job(self) -> None:
        with self.assertRaises(ValueError):
            place(12, "ada@example.com", is_valid=False)
        self.assertEqual([counts.pending for counts in self.app.counts().values() if counts.pending], [])
        with transaction.atomic():
            kept = place(13, "ada@example.com")
        self.run_all(kept)
        self.assertEqual(send_receipt.get_result(kept).status, Status.SUCCESSFUL)

    def test_a_later_time_and_a_priority_are_those_of_the_job(self) -> None:
        later = timezone.now() + timedelta(hours=1)
        sent = send_receipt.using(run_after=later, priority=-5).enqueue(1, "ada@example.com")
        job = self.app.job(sent.id).refresh()
        self.assertEqual((job.state.value, job.priority), ("scheduled", -5))
        self.assertEqual(job.run_at, int(later.timestamp() * 1000))

    def test_signals_are_sent(self) -> None:
        said: list[tuple[str, Any]] = []
        for name in ("task_enqueued", "task_started", "task_finished"):
            signal = getattr(signals, name)

            def listen(name: str = name, *, task_result: Any, **_: Any) -> None:
                said.append((name, task_result.status))

            signal.connect(listen, weak=False)
            self.addCleanup(signal.disconnect, listen)
        self.run_all(count.enqueue([1]).id)
        self.assertEqual(
            said,
            [
                ("task_enqueued", Status.READY),
                ("task_started", Status.RUNNING),
                ("task_finished", Status.SUCCESSFUL),
            ],
        )

    def test_what_cannot_run_is_refused_before_it_is_stored(self) -> None:
        with self.assertRaises(type(invalid_task(""))):
            send_receipt.using(queue_name="nobody").enqueue(1, "ada@example.com")
        with self.assertRaises(TypeError):
            send_receipt.enqueue(object(), "ada@example.com")
        with self.assertRaises(exceptions.TaskResultDoesNotExist):
            send_receipt.get_result("nobody")
        sent = send_receipt.enqueue(1, "ada@example.com")
        with self.assertRaises(exceptions.TaskResultMismatch):
            count.get_result(sent.id)
