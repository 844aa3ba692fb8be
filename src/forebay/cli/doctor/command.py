"""`forebay doctor`: find problems of settings, app and store, and their remedies."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

import click

from forebay.cli.doctor.check_result import CheckResult
from forebay.cli.doctor.setup_checks import check_app, check_settings, check_store
from forebay.cli.errors import ExitStatus, status_of
from forebay.cli.options import url_options
from forebay.cli.output import Output, text
from forebay.cli.redaction import redact
from forebay.cli.settings import Settings, read_settings
from forebay.cli.store_session import open_session
from forebay.errors import ConfigError, SchemaNewer, SchemaOutdated, StoreError, Unauthenticated

_SIGNS: Final = {"ok": "ok      ", "note": "note    ", "problem": "PROBLEM "}
# Headings about a store that cannot be read; the first match counts.
_PAGES: Final = (
    (Unauthenticated, "401-and-403"),
    ((SchemaOutdated, SchemaNewer), "the-schema-is-too-old-or-too-new"),
    (StoreError, "the-store-does-not-answer"),
)


@click.command()
@click.option("--quick", is_flag=True, help="Skip the consistency check of the whole store.")
@url_options
def doctor(url: str | None, app: str | None, as_json: bool, quick: bool) -> None:
    """Find problems, and say what to do about them.

    Checks settings, store, schema, permissions, workers, queues without workers, and stuck jobs. The exit
    status is 1 if there is a problem, 2 for wrong settings and 3 if the store cannot be used.
    """
    config = click.get_current_context().find_root().obj
    settings = read_settings({"url": url, "app": app}, config=config)
    findings, status = run_checks(settings, quick=quick)
    out = Output(as_json=as_json)
    answer: dict[str, Any] = {
        "is_well": status is ExitStatus.DONE,
        "findings": [
            {**asdict(finding), "message": redact(finding.message), "see": finding.page}
            for finding in findings
        ],
    }
    out.print_result(answer, lambda: _show(findings))
    if status is not ExitStatus.DONE:
        click.get_current_context().exit(status)


def _show(results: list[CheckResult]) -> None:
    for finding in results:
        click.echo(f"{_SIGNS[finding.level]} {finding.about}: {text(finding.message)}")
        if finding.todo:
            click.echo(f"          → {text(finding.todo)}")
        if finding.see:
            click.echo(f"            {finding.page}")
    problems = sum(finding.level == "problem" for finding in results)
    click.echo(
        f"\n{problems} problem{'' if problems == 1 else 's'} found" if problems else "\nNo problems found."
    )


def run_checks(settings: Settings, *, quick: bool) -> tuple[list[CheckResult], ExitStatus]:
    """Run all checks that can run; return their results and the exit status."""
    findings = list(check_settings(settings))
    try:
        findings += check_app(settings)
        with open_session(settings) as session:
            findings += check_store(session, quick=quick)
    except (StoreError, ConfigError, Unauthenticated) as exc:
        see = next((see for kind, see in _PAGES if isinstance(exc, kind)), "")
        findings.append(CheckResult(about="store", message=str(exc), level="problem", see=see))
        return findings, status_of(exc)
    is_well = all(finding.level != "problem" for finding in findings)
    return findings, ExitStatus.DONE if is_well else ExitStatus.BAD_ANSWER
