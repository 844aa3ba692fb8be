"""Building blocks of workflows: jobs in sequence (chain) and in parallel (group)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from forebay.app.job_options import OnFailureName
from forebay.domain.job import NewJob, OnFailure
from forebay.errors import ConfigError, InvalidJob


class Chain(msgspec.Struct, frozen=True):
    """Steps that run one after the other."""

    steps: tuple[Step, ...]
    on_failure: OnFailure


class Group(msgspec.Struct, frozen=True):
    """Steps that run in parallel."""

    steps: tuple[Step, ...]


Step: TypeAlias = NewJob | Chain | Group


def chain(*steps: Step, on_failure: OnFailureName = "cancel") -> Chain:
    """Build a chain: jobs, groups or chains, each of which waits for the one before."""
    return Chain(check_steps(steps), parse_on_failure(on_failure))


def group(*steps: Step) -> Group:
    """Build a group of jobs, chains or groups. All wait for the same step, and the next step waits for
    all."""
    return Group(check_steps(steps))


def parse_on_failure(value: object) -> OnFailure:
    """Return the OnFailure of this name; raise ConfigError for an unknown one."""
    try:
        return OnFailure(str(value))
    except ValueError:
        choices = ", ".join(OnFailure)
        raise ConfigError(f"on_failure must be one of {choices}, not {value!r:.60}") from None


def check_steps(steps: Iterable[object]) -> tuple[Step, ...]:
    """Return the steps as a tuple; raise InvalidJob for an object that is none."""
    checked: list[Step] = []
    for step in steps:
        if not isinstance(step, (NewJob, Chain, Group)):
            raise InvalidJob(f"a step is a job made by task.job(...), a chain or a group, not {step!r:.60}")
        checked.append(step)
    return tuple(checked)
