"""Tasks of the shop."""

from __future__ import annotations

try:
    from django.tasks import TaskContext, task
except ImportError:  # Django 5.2
    from django_tasks import TaskContext, task


class NoPaper(Exception):
    """The printer has nothing to print on."""


@task(queue_name="mail", priority=10)
def send_receipt(order: int, to: str) -> str:
    """Send the receipt of an order."""
    return f"receipt of order {order} sent to {to}"


@task
async def count(numbers: list[int]) -> int:
    """Add them up, on the event loop of a worker."""
    return sum(numbers)


@task(takes_context=True)
def print_label(context: TaskContext, order: int) -> str:
    """Print a label, which never works the first time, and not at all for an order of no such number."""
    if context.attempt == 1 or order < 0:
        raise NoPaper(f"no paper for order {order}")
    return f"label {order} at attempt {context.attempt}"
