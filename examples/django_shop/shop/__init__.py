"""A shop whose receipts are written by a worker."""
