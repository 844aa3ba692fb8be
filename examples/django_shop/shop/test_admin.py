"""Jobs in the admin: permissions to view and change them, and the pages."""

from __future__ import annotations

from io import StringIO
from typing import Any
from unittest.mock import patch

from django.contrib.admin import site
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connection
from django.test import Client, RequestFactory, TransactionTestCase

from forebay.integrations.django.admin import JobAdmin
from forebay.integrations.django.backend import django_app
from forebay.integrations.django.models import Job
from shop.tasks import count, print_label, send_receipt

LIST = "/admin/forebay/job/"


class Admin(TransactionTestCase):
    """Jobs are in the database of the tests, and stay there: each test looks at its own."""

    def setUp(self) -> None:
        self.app = django_app()

    def client_of(self, name: str, *permissions: str) -> Client:
        user = User.objects.create_user(name, password="for a test", is_staff=True)  # noqa: S106
        user.user_permissions.set(
            Permission.objects.filter(codename__in=permissions, content_type__app_label="forebay")
        )
        client = Client()
        client.force_login(user)
        return client

    def body(self, client: Client, address: str, **query: str) -> str:
        answer = client.get(address, query)
        self.assertEqual(answer.status_code, 200)
        return answer.content.decode()

    def act(self, client: Client, action: str, *ids: str) -> tuple[int, str]:
        answer: Any = client.post(LIST, {"action": action, "_selected_action": ids}, follow=True)
        return answer.status_code, " ".join(str(word) for word in answer.context["messages"] or ())

    def test_the_index_leads_to_the_list(self) -> None:
        client = self.client_of("ann", "view_job")
        self.assertIn(LIST, self.body(client, "/admin/"))
        self.assertIn("Filter", self.body(client, LIST))

    def test_who_has_no_permission_sees_nothing(self) -> None:
        sent = send_receipt.enqueue(1, "ada@example.com")
        stranger = self.client_of("bob")
        self.assertNotIn(LIST, self.body(stranger, "/admin/"))
        self.assertEqual(stranger.get(LIST).status_code, 403)
        self.assertEqual(stranger.get(f"{LIST}{sent.id}/").status_code, 403)
        self.assertEqual(Client().get(LIST).status_code, 302)  # to the login

    def test_jobs_are_found_by_state_queue_and_task(self) -> None:
        client = self.client_of("ann", "view_job")
        sent, counted = send_receipt.enqueue(2, "ada@example.com"), count.enqueue([1])
        for query in ({"queue": "mail"}, {"task": "shop.tasks.send_receipt"}):
            page = self.body(client, LIST, **query)
            self.assertIn(sent.id, page)
            self.assertNotIn(counted.id, page)
        self.assertNotIn(sent.id, self.body(client, LIST, state="dead"))
        self.assertIn("&#x27;nonsense&#x27; is no state", self.body(client, LIST, state="nonsense"))
        self.assertIn("is not the end of an earlier page", self.body(client, LIST, after="x"))

    def test_a_job_is_shown_with_its_life_and_without_secrets(self) -> None:
        client = self.client_of("ann", "view_job")
        label = print_label.enqueue(-7)
        with self.app.run_worker(queues=["default"]):
            self.app.job(label.id).wait(timeout=60)
        page = self.body(client, f"{LIST}{label.id}/")
        for words in ("dead", "NoPaper", "no paper for order -7", "-7"):
            self.assertIn(words, page)
        self.assertNotIn("<button", page.split("content-main")[1].split("footer")[0])
        hidden = self.app.enqueue("call", kwargs={"token": "hush", "text": "<script>"})
        page = self.body(client, f"{LIST}{hidden.id}/")
        self.assertNotIn("hush", page)
        self.assertIn("&lt;script&gt;", page)
        self.assertEqual(client.get(f"{LIST}no-such-job/").status_code, 404)

    def test_who_may_change_cancels_and_revives(self) -> None:
        client = self.client_of("ops", "view_job", "change_job")
        one, two = (send_receipt.enqueue(each, "ada@example.com").id for each in (1, 2))
        self.assertEqual(self.act(client, "cancel", one, two), (200, "2 cancelled, or asked to stop."))
        self.assertEqual(self.app.job(one).refresh().state.value, "cancelled")
        status, words = self.act(client, "cancel", one)
        self.assertEqual(status, 200)
        self.assertIn(one, words)
        client.post(f"{LIST}{one}/", {"action": "revive"})
        self.assertEqual(self.app.job(one).refresh().state.value, "pending")
        page = self.body(client, f"{LIST}{one}/")
        self.assertIn("by django:ops", page)
        self.assertEqual(self.act(client, "cancel"), (200, "Choose jobs first."))
        self.assertIn("is no action of the admin", self.act(client, "burn", two)[1])

    def test_who_may_only_look_changes_nothing(self) -> None:
        client = self.client_of("ann", "view_job")
        sent = send_receipt.enqueue(1, "ada@example.com")
        for address in (LIST, f"{LIST}{sent.id}/"):
            answer = client.post(address, {"action": "cancel", "_selected_action": [sent.id]})
            self.assertEqual(answer.status_code, 403)
        self.assertEqual(self.app.job(sent.id).refresh().state.value, "pending")

    def test_a_page_of_another_site_changes_nothing(self) -> None:
        operator = self.client_of("ops", "change_job")
        sent = send_receipt.enqueue(1, "ada@example.com")
        strict = Client(enforce_csrf_checks=True)
        strict.cookies = operator.cookies
        answer = strict.post(LIST, {"action": "cancel", "_selected_action": [sent.id]})
        self.assertEqual(answer.status_code, 403)
        self.assertEqual(self.app.job(sent.id).refresh().state.value, "pending")

    def test_the_list_goes_on_where_a_page_ends(self) -> None:
        client = self.client_of("ann", "view_job")
        task = "shop.tasks.count"
        first = count.enqueue([1]).id
        self.app.enqueue_many([self.app.registry[task].job([each]) for each in range(100)])
        page: Any = client.get(LIST, {"task": task})
        self.assertNotContains(page, first)
        self.assertContains(client.get(f"{LIST}{page.context['next']}"), first)

    def test_jobs_behind_many_others_are_found(self) -> None:
        client = self.client_of("ann", "view_job")
        rare = self.app.enqueue("rare").id
        others = [self.app.registry["shop.tasks.count"].job([each]) for each in range(60)]
        self.app.enqueue_many(others[:30])
        # As if there were thousands.
        look = "sqlite.reader" if connection.vendor == "sqlite" else "postgres.search"
        with patch(f"forebay.stores.{look}.ROWS_PER_SCAN", 10):
            self.assertContains(client.get(LIST, {"task": "rare"}), rare)
            self.app.enqueue_many(others[30:])
            page: Any = client.get(LIST, {"task": "rare"})
            self.assertNotContains(page, rare)
            self.assertContains(page, "None among the newest jobs.")
            self.assertContains(client.get(f"{LIST}{page.context['next']}"), rare)
        self.assertContains(client.get(LIST, {"task": "none"}), "There are no such jobs.")

    def test_a_wrong_filter_leads_back(self) -> None:
        client = self.client_of("ann", "view_job")
        for query in ({"state": "nonsense"}, {"after": "x"}):
            page = self.body(client, LIST, **query)
            self.assertIn("By queue", page)
            self.assertIn('<a href="?">All jobs</a>', page)
        self.assertIn('<a href="?">All jobs</a>', self.body(client, LIST, backend="none"))

    def test_a_link_names_the_backend_as_it_is(self) -> None:
        request = RequestFactory().get(LIST, {"backend": "my_backend"})
        link = JobAdmin(Job, site)._job_link(request, "a_b")
        self.assertEqual(link, f"{LIST}a_5Fb/?backend=my_backend")

    def test_there_is_no_table_and_none_is_needed(self) -> None:
        dumped = StringIO()
        call_command("dumpdata", "forebay", stdout=dumped)
        self.assertEqual(dumped.getvalue().strip(), "[]")
        call_command("makemigrations", "--check", "--dry-run", stdout=StringIO())
        call_command("check", "--fail-level", "WARNING", stdout=StringIO(), stderr=StringIO())
