"""In-memory engine: jobs in dictionaries behind one lock. Nothing outlives the process.

This is the shortest honest implementation of the store contract, and the reference for the other engines. Use
it in tests and for jobs that need not outlive the program.
"""

from __future__ import annotations
