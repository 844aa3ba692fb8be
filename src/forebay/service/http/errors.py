"""Errors as answers: problem details, by one table."""

from __future__ import annotations

import logging
from typing import Any, Final

from litestar import Request, Response
from litestar.exceptions import HTTPException

from forebay.errors import ForebayError
from forebay.service import problems
from forebay.service.problems import make_problem, problem_of
from forebay.service.schema.base import InvalidRequest, Problem

PROBLEM_JSON: Final = "application/problem+json"
SERVER_ERRORS: Final = 500

_BY_STATUS: Final = {
    404: problems.NOT_FOUND,
    405: problems.UNSUPPORTED,
    408: problems.TOO_SLOW,
    413: problems.TOO_LARGE,
}

_BODY: Final = "data"  # what the framework calls the whole of it

logger: logging.Logger = logging.getLogger(__name__)


class RequestTimeout(Exception):
    """A request did not arrive in its time."""


def problem_response(problem: Problem) -> Response[Problem]:
    """A problem as an answer, with the time after which to come again."""
    after = problem.retry_after_seconds
    return Response(
        problem,
        status_code=problem.status,
        media_type=PROBLEM_JSON,
        headers={} if after is None else {"Retry-After": str(after)},
    )


def handle_forebay_error(_: Request[Any, Any, Any], error: ForebayError) -> Response[Problem]:
    """The answer to what one of our own errors has ended."""
    return problem_response(problem_of(error))


def handle_http_error(_: Request[Any, Any, Any], error: HTTPException) -> Response[Problem]:
    """The answer to a request that does not fit any operation, or not the one that it names."""
    kind = _BY_STATUS.get(error.status_code)
    if kind is None:
        kind = problems.BAD_REQUEST if error.status_code < SERVER_ERRORS else problems.INTERNAL
    found = _first_error(error.extra) if error.status_code < SERVER_ERRORS else ("", None)
    made_answer = problem_response(make_problem(kind, found[0] or str(error.detail), field=found[1]))
    for name, value in (error.headers or {}).items():
        made_answer.set_header(name, value)  # such as Allow beside 405
    return made_answer


def handle_invalid_request(_: Request[Any, Any, Any], error: InvalidRequest) -> Response[Problem]:
    """The answer to a body that is not JSON, or not of the right shape."""
    return problem_response(
        make_problem(problems.BAD_REQUEST, f"the body cannot be read: {error!s:.500}", field=error.field)
    )


def handle_timeout(_: Request[Any, Any, Any], error: RequestTimeout) -> Response[Problem]:
    """The answer to a body that does not come."""
    return problem_response(make_problem(problems.TOO_SLOW, str(error)))


def handle_unexpected_error(_: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    """The request boundary: a fault of ours is told to our log, and to nobody else."""
    logger.error("a request has met a fault of the service", exc_info=error)
    return problem_response(
        make_problem(problems.INTERNAL, "the service has met a fault of its own; its log says more")
    )


def _first_error(extra: Any) -> tuple[str, str | None]:
    """The first thing that is wrong with a request, and where."""
    one = next(iter(extra), None) if isinstance(extra, list) else None
    if not isinstance(one, dict):
        return "", None
    key = one.get("key", _BODY)
    return str(one.get("message", "")), None if key == _BODY else str(key)


HANDLERS: Final[dict[int | type[Exception], Any]] = {
    ForebayError: handle_forebay_error,
    HTTPException: handle_http_error,
    InvalidRequest: handle_invalid_request,
    RequestTimeout: handle_timeout,
    Exception: handle_unexpected_error,
}
