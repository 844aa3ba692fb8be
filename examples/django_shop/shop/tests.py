"""`python manage.py test`: the tasks of the shop as Django's tests see them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.test import TestCase, TransactionTestCase
from django.utils import timezone

from forebay.errors import ConfigError
from forebay.integrations.django.backend import django_app
from forebay.integrations.django.tasks_api import base, exceptions, invalid_task, signals
from shop.orders import place
from shop.tasks import NoPaper, count, print_label, send_receipt

WITHIN = 60.0
Status = base.TaskResultStatus


class Tasks(TransactionTestCase):
    """Jobs are in the database of the tests, and stay there: each test looks at its own."""

    def setUp(self) -> None:
        self.app = django_app()

    def run_all(self, *ids: str) -> None:
        with self.app.run_worker(queues=["default", "mail"]):
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
        before = self.app.counts()
        with self.assertRaises(ValueError):
            place(12, "ada@example.com", is_valid=False)
        self.assertEqual(self.app.counts(), before)
        with transaction.atomic():
            kept = place(13, "ada@example.com")
        self.run_all(kept)
        self.assertEqual(send_receipt.get_result(kept).status, Status.SUCCESSFUL)

    def test_a_job_can_wait_for_the_commit_too(self) -> None:
        """For a store that is not the database of the shop; here it is, and it does no harm."""
        sent: list[str] = []

        def send() -> None:
            sent.append(send_receipt.enqueue(14, "ada@example.com").id)

        with self.assertRaises(ValueError), transaction.atomic():
            transaction.on_commit(send)
            raise ValueError
        with transaction.atomic():
            transaction.on_commit(send)
            self.assertEqual(sent, [])
        [kept] = sent
        self.run_all(kept)
        self.assertEqual(send_receipt.get_result(kept).status, Status.SUCCESSFUL)

    def test_a_later_time_and_a_priority_are_those_of_the_job(self) -> None:
        later = timezone.now() + timedelta(hours=1)
        sent = send_receipt.using(run_after=later, priority=-5).enqueue(1, "ada@example.com")
        job = self.app.job(sent.id).refresh()
        self.assertEqual((job.state.value, job.priority), ("scheduled", -5))
        self.assertEqual(job.run_at, int(later.timestamp() * 1000))

    def test_signals_are_sent(self) -> None:
        messages: list[tuple[str, Any]] = []
        for name in ("task_enqueued", "task_started", "task_finished"):
            signal = getattr(signals, name)

            def listen(name: str = name, *, task_result: Any, **_: Any) -> None:
                messages.append((task_result.id, (name, task_result.status)))

            signal.connect(listen, weak=False)
            self.addCleanup(signal.disconnect, listen)
        counted = count.enqueue([1])
        self.run_all(counted.id)
        self.assertEqual(
            [what for job_id, what in messages if job_id == counted.id],
            [
                ("task_enqueued", Status.READY),
                ("task_started", Status.RUNNING),
                ("task_finished", Status.SUCCESSFUL),
            ],
        )

    def test_who_listens_and_fails_makes_nothing_run_again(self) -> None:
        messages: list[Any] = []

        def fail(*, task_result: Any, **_: Any) -> None:
            messages.append((task_result.id, task_result.status))
            raise RuntimeError("cannot listen")

        for name in ("task_enqueued", "task_started", "task_finished"):
            signal = getattr(signals, name)
            signal.connect(fail)
            self.addCleanup(signal.disconnect, fail)
        with self.assertLogs("forebay.integrations.django.backend", "ERROR"):
            counted = count.enqueue([1])
            self.run_all(counted.id)
        ours = [status for job_id, status in messages if job_id == counted.id]
        self.assertEqual(ours, [Status.READY, Status.RUNNING, Status.SUCCESSFUL])
        counted.refresh()
        self.assertEqual((counted.return_value, counted.attempts), (1, 1))

    def test_a_job_that_dies_is_told_with_its_error(self) -> None:
        messages: list[Any] = []

        def listen(*, task_result: Any, **_: Any) -> None:
            messages.append((task_result.id, task_result.status, task_result.errors))

        signals.task_finished.connect(listen)
        self.addCleanup(signals.task_finished.disconnect, listen)
        label = print_label.enqueue(-1)
        self.run_all(label.id)
        [(status, errors)] = [(status, errors) for job_id, status, errors in messages if job_id == label.id]
        self.assertEqual((status, errors[-1].exception_class), (Status.FAILED, NoPaper))

    def test_the_log_line_of_a_job_that_dies_has_its_error(self) -> None:
        with self.assertLogs(signals.logger, "ERROR") as logged:
            label = print_label.enqueue(-2)
            self.run_all(label.id)
        [line] = logged.output
        self.assertIn("state=FAILED", line)
        self.assertIn("NoPaper: no paper for order -2", line)
        self.assertIn("in print_label", line)

    def test_without_autocommit_no_job_is_stored_apart_from_the_transaction(self) -> None:
        before = self.app.counts()
        transaction.set_autocommit(False)
        try:
            send_receipt.enqueue(14, "ada@example.com")  # PostgreSQL has begun a transaction by itself
        except ConfigError as refused:
            self.assertIn("begin a transaction first", str(refused))
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)
        self.assertEqual(self.app.counts(), before)

    def test_what_cannot_run_is_refused_before_it_is_stored(self) -> None:
        with self.assertRaises(type(invalid_task(""))):
            send_receipt.using(queue_name="missing").enqueue(1, "ada@example.com")
        with self.assertRaises(TypeError):
            send_receipt.enqueue(object(), "ada@example.com")
        with self.assertRaises(exceptions.TaskResultDoesNotExist):
            send_receipt.get_result("missing")
        sent = send_receipt.enqueue(1, "ada@example.com")
        with self.assertRaises(exceptions.TaskResultMismatch):
            count.get_result(sent.id)


class InATransaction(TestCase):
    """Django undoes each of these tests, and its jobs with it."""

    def test_a_task_is_enqueued_in_a_database_that_was_just_made(self) -> None:
        sent = send_receipt.enqueue(21, "ada@example.com")
        self.assertEqual(sent.status, Status.READY)

    def test_no_worker_sees_a_job_of_a_test_that_django_undoes(self) -> None:
        sent = send_receipt.enqueue(22, "ada@example.com")
        with self.assertRaises(exceptions.TaskResultDoesNotExist):
            send_receipt.get_result(sent.id)
