"""Write the pages of docs/reference that are made from the code, but for those of the service.

python -m tools.reference_pages           write them
python -m tools.reference_pages --check   fail if one is not as it would be written
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tools.reference_pages import command_line, errors, metrics, python_api, settings

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "reference"


def wanted() -> dict[Path, str]:
    """The pages as they should be."""
    return {
        FOLDER / "command-line.md": command_line.page(),
        FOLDER / "errors.md": errors.page(),
        FOLDER / "metrics.md": metrics.page(),
        FOLDER / "python.md": python_api.page((FOLDER / "api.md").read_text(encoding="utf-8")),
        FOLDER / "settings.md": settings.filled((FOLDER / "settings.md").read_text(encoding="utf-8")),
    }


def stale() -> list[str]:
    """The pages that are not as they should be."""
    pages = wanted().items()
    return [
        path.name for path, text in pages if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


def main() -> int:
    if "--check" in sys.argv[1:]:
        found = stale()
        for name in found:
            print(f"{name} is not fresh: make reference", file=sys.stderr)
        return 1 if found else 0
    for path, text in wanted().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
