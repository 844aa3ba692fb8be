"""Orders, each with a receipt that is sent after the commit."""

from __future__ import annotations

from django.db import transaction

from shop.tasks import send_receipt


def place(order: int, to: str, *, is_valid: bool = True) -> str:
    """Save an order. If that fails, no receipt is sent: the job is part of the transaction."""
    with transaction.atomic():
        receipt = send_receipt.enqueue(order, to)
        if not is_valid:
            raise ValueError(f"order {order} has no articles")
    return receipt.id
