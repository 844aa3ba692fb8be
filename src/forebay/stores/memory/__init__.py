"""Jobs in dictionaries behind one lock: nothing survives the process.

This is the shortest honest reading of the contract, the reference that the other engines are compared
with. Use it in tests and for jobs that need not outlive the program.
"""

from __future__ import annotations
