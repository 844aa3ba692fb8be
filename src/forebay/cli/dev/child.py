"""Child process of `forebay dev`: runs one command, and ends when its parent process ends."""

from __future__ import annotations

import sys

from forebay.cli.main import main
from forebay.worker.parent_death import die_with

if __name__ == "__main__":
    die_with(int(sys.argv.pop(1)))
    main(prog_name="forebay")
