"""An error of ours as it is told to a client."""

from __future__ import annotations

from forebay.errors import ForebayError
from forebay.service.problems import ProblemKind, field_of, holder_of, kind_of, retry_after_of
from forebay.service.schema.shared import Problem


def problem_of(error: ForebayError) -> Problem:
    """What went wrong, by the table of problems."""
    return make_problem(
        kind_of(error),
        str(error),
        field=field_of(error),
        holder=holder_of(error),
        retry_after_seconds=retry_after_of(error),
    )


def make_problem(
    kind: ProblemKind,
    detail: str,
    *,
    field: str | None = None,
    holder: str | None = None,
    retry_after_seconds: int | None = None,
) -> Problem:
    """A problem of this kind."""
    return Problem(
        type=f"urn:forebay:problem:{kind.code}",
        title=kind.title,
        status=kind.status,
        code=kind.code,
        detail=detail,
        field=field,
        holder=holder,
        retry_after_seconds=retry_after_seconds,
    )
