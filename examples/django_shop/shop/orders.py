"""Orders, each with a receipt that is sent once it is kept."""

from __future__ import annotations

from django.db import transaction

from shop.tasks import send_receipt


def place(order: int, to: str, *, is_valid: bool = True) -> str:
    """Keep an order. If that fails, nobody gets a receipt: the job is part of the transaction."""
    with transaction.atomic():
        receipt = send_receipt.enqueue(order, to)
        if not is_valid:
            raise ValueError(f"order {order} has no articles")
    return receipt.id
