"""Audit log of the in-memory engine."""

from __future__ import annotations

from heapq import nlargest, nsmallest
from itertools import takewhile

from forebay.domain.audit_hash_chain import START, ChainLine, ChainLink, extend_chain
from forebay.domain.job_history import Event
from forebay.stores.memory.state import State


def append_chain(state: State, limit: int) -> int:
    """Append lines to the chain. Numbers grow in the order of commits: calls change the state one by one."""
    rest = nsmallest(limit, _find_unchained(state).items())
    for line in extend_chain(_chain_head(state), rest):
        state.write(state.audit_chain, line.position, line)
    return len(rest)


def prune(state: State, before: int) -> None:
    """Remove the oldest lines of the chain, up to the last one past the retention: it stays as the anchor."""
    chain = state.audit_chain
    old = list(takewhile(lambda at: chain[at].event.occurred_at <= before, sorted(chain)))
    for position in old[:-1]:
        state.write(state.audit, chain[position].number, None)
        state.write(chain, position, None)


def load_newest(state: State, limit: int, after: int | None) -> list[tuple[int, Event]]:
    """Return the audit log and the events that are no actions, newest first."""
    lines = {number: event for number, event in state.events.items() if not event.is_action} | state.audit
    numbers = [number for number in lines if after is None or number < after]
    return [(number, lines[number]) for number in nlargest(limit, numbers)]


def load_chain(state: State, limit: int, after: int) -> list[ChainLine]:
    """Return lines of the chain after a position."""
    positions = (position for position in state.audit_chain if position > after)
    return [state.audit_chain[position] for position in nsmallest(limit, positions)]


def count_unchained(state: State) -> int:
    return len(_find_unchained(state))


def _chain_head(state: State) -> ChainLink:
    return state.audit_chain[max(state.audit_chain)].link if state.audit_chain else START


def _find_unchained(state: State) -> dict[int, Event]:
    last = state.audit_chain[max(state.audit_chain)].number if state.audit_chain else 0
    return {number: event for number, event in state.audit.items() if number > last}
