"""Build the documentation as a site of static pages, without a network.

python -m tools.build_site [FOLDER]    build/site without one; status 1 for a broken link, a page that
                                       is in no index, and all else that the builder warns of

Sphinx and not MkDocs or its heirs: it is kept up, it warns of unlisted pages, and its search is
a script that works from the disk, too. Its theme, Furo, brings all it needs; nothing is loaded from
elsewhere.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from sphinx.application import Sphinx

from tools.site_pages import Site

ROOT: Final = Path(__file__).resolve().parent.parent
CONFIGURATION: Final = ROOT / "tools" / "site_conf"


def build(root: Path, out: Path) -> int:
    """Build the site of a repository; the status of the builder. A site that is there makes room."""
    if out.exists():
        if any(out.iterdir()) and not (out / "searchindex.js").exists():
            raise SystemExit(f"{out} is there and is no site; name another folder, or remove it")
        shutil.rmtree(out)
    with tempfile.TemporaryDirectory(prefix="forebay-site-") as name:
        source = Path(name) / "source"
        Site(root).write(source)
        app = Sphinx(
            source,
            CONFIGURATION,
            out,
            Path(name) / "trees",
            "html",
            status=None,
            warning=sys.stderr,
            freshenv=True,
            warningiserror=True,
        )
        app.build(force_all=True)
    for leftover in (".buildinfo", "objects.inv"):
        (out / leftover).unlink(missing_ok=True)
    return int(app.statuscode)


def main() -> int:
    out = Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT / "build" / "site"
    status = build(ROOT, out)
    if status == 0:
        print(f"{len(Site(ROOT).names)} pages: open {out / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
