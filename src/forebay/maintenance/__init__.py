"""What happens by the clock: duties over the store seam, for workers and for programs of their own."""

from __future__ import annotations
