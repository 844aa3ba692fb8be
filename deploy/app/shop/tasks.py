"""The program that the files of this folder deploy; put yours in its place."""

from __future__ import annotations

import os

from forebay import Forebay

app = Forebay(os.environ["FOREBAY_URL"])


@app.task(name="receipt", queue="mail", retries=5, timeout=60)
def receipt(order: int) -> str:
    """Mail the receipt of an order."""
    return f"receipt of order {order} sent"
