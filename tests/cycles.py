"""Reference cycles that some work leaves behind."""

from __future__ import annotations

import gc
from collections.abc import Callable


def cycles_after(work: Callable[[], object]) -> set[str]:
    """The classes of the package whose objects only the garbage collector can free after this work."""
    work()  # once before: caches are filled
    gc.collect()
    gc.disable()
    try:
        work()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return {type(one).__qualname__ for one in gc.garbage if type(one).__module__.startswith("forebay.")}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
