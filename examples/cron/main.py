"""Schedule example: two workers, one job per second, fired by one of them.

One schedule is declared in the code, one is saved while the workers run. The history shows each run.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from time import sleep

from forebay import Forebay, current_job


def scheduled(url: str) -> Forebay:
    app = Forebay(url)

    @app.cron("* * * * * *", name="tick", overlap="skip")
    @app.task(name="announce")
    def announce(who: str = "tick") -> None:
        print(f"{who:6} for {current_job().job.metadata['scheduled_for']}", flush=True)

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'jobs.db'}"
        with scheduled(url) as app, scheduled(url) as other, app.run_worker(), other.run_worker():
            app.schedules.save("tock", "announce", ["tock"], every=2)
            sleep(seconds)
        with Forebay(url) as after:
            for schedule in after.schedules.list():
                runs = [
                    line.planned_at
                    for line in after.schedules.history(schedule.name)
                    if line.status == "enqueued"
                ]
                twice = [at for at, times in Counter(runs).items() if times > 1]
                print(f"{schedule.name}: {len(runs)} runs, {len(twice)} of them twice")


if __name__ == "__main__":
    main()
