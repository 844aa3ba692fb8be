"""Configuration of Sphinx for the site; `tools/build_site.py` runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from forebay import __version__

project = "Forebay"
author = copyright = "the Forebay authors"
version = release = __version__

extensions = ["myst_parser", "sphinx_copybutton"]
myst_heading_anchors = 6
# What is shown as code is read as code: quotes stay straight, and two hyphens stay two.
smartquotes = False
copybutton_prompt_text = "$ "
pygments_dark_style = "github-dark"

html_theme = "furo"
html_title = "Forebay"
html_favicon = str(Path(__file__).resolve().parents[2] / "dashboard" / "public" / "favicon.svg")
html_static_path = ["static"]
html_css_files = ["forebay.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {
        # No font is loaded: that of the system will do.
        "font-stack": 'system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif',
        "color-brand-primary": "#0b5c8a",
        "color-brand-content": "#0b5c8a",
    },
    "dark_css_variables": {"color-brand-primary": "#6cc0ee", "color-brand-content": "#6cc0ee"},
}


def setup(app: Sphinx) -> None:
    # Before the theme, whose turn comes at 500.
    app.connect("html-page-context", _navigate, priority=400)


def _navigate(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: object) -> None:
    """The navigation has sections and pages. The theme asks for all levels, and leaves the headings out then,
    which takes as long as all the rest."""
    whole = context["toctree"]
    context["toctree"] = lambda **options: whole(**{**options, "maxdepth": 2})
