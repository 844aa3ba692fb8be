"""Errors as problem details, by the table of problems."""

from __future__ import annotations

import logging
from typing import Any, Final

from litestar import Request, Response
from litestar.exceptions import HTTPException

from forebay.errors import ForebayError
from forebay.service import problem_details
from forebay.service.problem_details import make_problem, problem_of
from forebay.service.schema.base import InvalidRequest, Problem

PROBLEM_JSON: Final = "application/problem+json"
SERVER_ERRORS: Final = 500

_BY_STATUS: Final = {
    404: problem_details.NOT_FOUND,
    405: problem_details.UNSUPPORTED,
    408: problem_details.TOO_SLOW,
    413: problem_details.TOO_LARGE,
}

_BODY: Final = "data"  # Litestar's name of the whole body

logger: logging.Logger = logging.getLogger(__name__)


class RequestTimeout(Exception):
    """Request whose body did not arrive in time."""


def problem_response(problem: Problem) -> Response[Problem]:
    """Return a problem as a response, with Retry-After."""
    after = problem.retry_after_seconds
    return Response(
        problem,
        status_code=problem.status,
        media_type=PROBLEM_JSON,
        headers={} if after is None else {"Retry-After": str(after)},
    )


def handle_forebay_error(_: Request[Any, Any, Any], error: ForebayError) -> Response[Problem]:
    """Return the response to a Forebay error."""
    return problem_response(problem_of(error))


def handle_http_error(_: Request[Any, Any, Any], error: HTTPException) -> Response[Problem]:
    """Return the response to a request that matches no endpoint, or is malformed."""
    kind = _BY_STATUS.get(error.status_code)
    if kind is None:
        kind = problem_details.BAD_REQUEST if error.status_code < SERVER_ERRORS else problem_details.INTERNAL
    message, field = _first_error(error.extra) if error.status_code < SERVER_ERRORS else ("", None)
    response = problem_response(make_problem(kind, message or str(error.detail), field=field))
    for name, value in (error.headers or {}).items():
        response.set_header(name, value)  # such as Allow with a 405
    return response


def handle_invalid_request(_: Request[Any, Any, Any], error: InvalidRequest) -> Response[Problem]:
    """Return the response to a body that is not JSON, or does not match the schema."""
    return problem_response(
        make_problem(
            problem_details.BAD_REQUEST, f"the body cannot be read: {error!s:.500}", field=error.field
        )
    )


def handle_timeout(_: Request[Any, Any, Any], error: RequestTimeout) -> Response[Problem]:
    """Return the response to a body that does not arrive."""
    return problem_response(make_problem(problem_details.TOO_SLOW, str(error)))


def handle_unexpected_error(_: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    """Return the response to an internal error, whose details go to the log only."""
    logger.error("a request has failed with an internal error", exc_info=error)
    return problem_response(make_problem(problem_details.INTERNAL, problem_details.INTERNAL_DETAIL))


def _first_error(extra: Any) -> tuple[str, str | None]:
    """Return the first validation error of a request, and its field."""
    first = next(iter(extra), None) if isinstance(extra, list) else None
    if not isinstance(first, dict):
        return "", None
    key = first.get("key", _BODY)
    return str(first.get("message", "")), None if key == _BODY else str(key)


HANDLERS: Final[dict[int | type[Exception], Any]] = {
    ForebayError: handle_forebay_error,
    HTTPException: handle_http_error,
    InvalidRequest: handle_invalid_request,
    RequestTimeout: handle_timeout,
    Exception: handle_unexpected_error,
}
