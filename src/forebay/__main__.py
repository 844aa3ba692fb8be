"""`python -m forebay`: the command line."""

from __future__ import annotations

from forebay.cli.main import main

if __name__ == "__main__":
    main(prog_name="python -m forebay")
