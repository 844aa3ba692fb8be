"""Calls of several transactions: a later one that fails must not hide the result of the first."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from forebay.errors import StoreBusy, StoreUnavailable

T = TypeVar("T")

logger: logging.Logger = logging.getLogger(__name__)


def run_optional(call: Callable[[], T]) -> T | None:
    """Return the result of an optional part of a call; None, with a line in the log, if it has failed.

    None also if another transaction holds a lock that it needs: then it has not happened. StoreUnavailable
    passes: then the part may have happened, and the caller has to look for its leases.
    """
    try:
        return call()
    except StoreBusy:
        return None
    except StoreUnavailable:
        raise
    except Exception:
        logger.exception("jobs that were just released could not be claimed in the same call")
        return None


@contextmanager
def raise_as_lost_response() -> Iterator[None]:
    """Turn every error into StoreUnavailable, after a part that has leased jobs: the answer to the whole call
    is lost.

    The caller then repeats its settlements and asks for its leases. Another error would mean that nothing has
    happened, and no worker would know of the leases.
    """
    try:
        yield
    except StoreUnavailable:
        raise
    except Exception as exc:
        raise StoreUnavailable(f"a call was done in part only: {exc}") from exc
