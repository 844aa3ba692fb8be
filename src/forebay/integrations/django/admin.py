"""Django admin for jobs: a list with filters, a page for one job, and two actions.

A user with `forebay.view_job` may look; one with `forebay.change_job` may cancel and revive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse

from forebay.errors import ForebayError
from forebay.integrations.django.admin_views import (
    AdminQuery,
    filters,
    list_jobs,
    load_job_details,
    run_action,
)
from forebay.integrations.django.models import Job

_DONE = {"cancel": "cancelled, or asked to stop", "revive": "revived"}


if TYPE_CHECKING:  # Django has no types

    class _ModelAdmin:
        """The part of Django's class that is used here."""

        def __getattr__(self, name: str) -> Any: ...
else:
    _ModelAdmin = admin.ModelAdmin


@admin.register(Job)
class JobAdmin(_ModelAdmin):
    """Admin with views of its own in place of those for rows of a table."""

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view
        return [
            path("", view(self.changelist_view), name="forebay_job_changelist"),
            path("<path:object_id>/", view(self.job_view), name="forebay_job_change"),
        ]

    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:
        """Show the list; a POST runs an action on the selected jobs."""
        if request.method == "POST":
            return self._run_action(request, request.POST.getlist("_selected_action"))
        self._check_view(request)
        context = {"jobs": [], "filters": [], **(extra_context or {})}
        try:
            admin_query = AdminQuery(request.GET.dict())
            context["filters"] = filters(admin_query)  # first: they work after an invalid request too
            context |= list_jobs(admin_query)
        except ForebayError as exc:
            self.message_user(request, str(exc), messages.ERROR)
            context["has_failed"] = True
        for row in context["jobs"]:
            row["link"] = self._job_link(request, row["job"].id)
        return self._render(request, "admin/forebay/job/change_list.html", "Jobs", context)

    def job_view(self, request: Any, object_id: str) -> Any:
        """Show one job; a POST runs an action on it."""
        job_id = unquote(object_id)
        if request.method == "POST":
            return self._run_action(request, [job_id])
        self._check_view(request)
        try:
            context = load_job_details(AdminQuery(request.GET.dict()), job_id)
        except ForebayError as exc:
            self.message_user(request, str(exc), messages.ERROR)
            return HttpResponseRedirect(self._link("changelist"))
        if context is None:
            raise Http404(f"there is no job {job_id}")
        return self._render(request, "admin/forebay/job/change_form.html", context["job"].task, context)

    def _run_action(self, request: Any, ids: list[str]) -> Any:
        if not self.has_change_permission(request):
            raise PermissionDenied
        action = request.POST.get("action", "")
        try:
            changed, refusals = run_action(AdminQuery(request.GET.dict()), action, ids, self._actor(request))
        except ForebayError as exc:
            self.message_user(request, str(exc), messages.ERROR)
        else:
            if not ids:
                self.message_user(request, "Choose jobs first.", messages.WARNING)
            if changed:
                self.message_user(request, f"{changed} {_DONE[action]}.", messages.SUCCESS)
            for refusal in refusals:
                self.message_user(request, refusal, messages.WARNING)
        return HttpResponseRedirect(request.get_full_path())

    @staticmethod
    def _actor(request: Any) -> str:
        """Return the user as an actor of the audit log, where # begins the id of a request."""
        return f"django:{request.user.get_username()}".replace("#", "_")

    def _check_view(self, request: Any) -> None:
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied

    def _link(self, view: str, *args: str) -> str:
        link: str = reverse(f"admin:forebay_job_{view}", args=args, current_app=self.admin_site.name)
        return link

    def _job_link(self, request: Any, job_id: str) -> str:
        link = self._link("change", quote(job_id))
        backend = request.GET.get("backend")
        return f"{link}?{urlencode({'backend': backend})}" if backend else link

    def _render(self, request: Any, template: str, title: str, context: dict[str, Any]) -> Any:
        own = {
            **self.admin_site.each_context(request),
            "title": title,
            "opts": self.opts,
            "may_change": self.has_change_permission(request),
            **context,
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, template, own)
