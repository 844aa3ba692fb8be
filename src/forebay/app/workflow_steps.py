"""What a workflow is made of: jobs one after the other, and beside each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from forebay.app.options import OnFailureName
from forebay.domain.job import NewJob, OnFailure
from forebay.errors import ConfigError, InvalidJob


class Chain(msgspec.Struct, frozen=True):
    """Steps that run one after the other."""

    steps: tuple[Step, ...]
    on_failure: OnFailure


class Group(msgspec.Struct, frozen=True):
    """Steps that run beside each other."""

    steps: tuple[Step, ...]


Step: TypeAlias = NewJob | Chain | Group


def chain(*steps: Step, on_failure: OnFailureName = "cancel") -> Chain:
    """Jobs, or groups and chains of them, of which each waits for the one before."""
    return Chain(check_steps(steps), parse_on_failure(on_failure))


def group(*steps: Step) -> Group:
    """Jobs, or chains and groups of them, that wait for the same and for which the next step waits."""
    return Group(check_steps(steps))


def parse_on_failure(value: object) -> OnFailure:
    """What a failed parent means, in the word of the caller."""
    try:
        return OnFailure(str(value))
    except ValueError:
        words = ", ".join(OnFailure)
        raise ConfigError(f"on_failure must be one of {words}, not {value!r:.60}") from None


def check_steps(steps: Iterable[object]) -> tuple[Step, ...]:
    found: list[Step] = []
    for step in steps:
        if not isinstance(step, (NewJob, Chain, Group)):
            raise InvalidJob(f"a step is a job made by task.job(...), a chain or a group, not {step!r:.60}")
        found.append(step)
    return tuple(found)
