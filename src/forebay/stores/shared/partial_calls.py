"""Calls that are several transactions: a later one that fails must not hide what the first one has done."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from forebay.errors import StoreBusy, StoreUnavailable

T = TypeVar("T")

logger: logging.Logger = logging.getLogger(__name__)


def run_optional(call: Callable[[], T]) -> T | None:
    """The answer of a part that a call can do without; None, with a line in the log, if it has failed.

    None too if it needs what another transaction holds: then it has not happened. StoreUnavailable passes.
    Then the part may have happened, and the caller has to look for its leases.
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
    """After a part that has leased jobs: any error means that the answer to the whole call is lost.

    The caller then offers its settlements again and asks which leases it holds. An error of another kind
    would say that nothing has happened, and the leases would be known to no worker.
    """
    try:
        yield
    except StoreUnavailable:
        raise
    except Exception as exc:
        raise StoreUnavailable(f"a call was done in part only: {exc}") from exc
