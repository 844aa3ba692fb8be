"""Take the attempt out of the fence, in one statement of one engine at a time, and see a test fail.

    python tools/fence.py                     every guard of every engine, a table; fails if one is not missed
    python tools/fence.py --engine redis      those of one engine; several may be named
    python tools/fence.py --only renew        what has this in its name
    python tools/fence.py --list              what would be removed, without running anything

The attempt is the fencing token: every write under a lease names it, and each statement, script or function
that makes such a write checks it. This program removes each of these checks, in a copy of the package, and
runs the tests of the fence on that engine: those of the contract, those of single statements, and for the
memory engine the simulated lives. A check behind another one needs a test of its statement alone.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.mutate import PLUGIN_NAME, Cut, Mutant, Workshop, copied
from tools.statements import DIALECTS, SOURCE, STORES, read_source, statement_paths

ENGINES: Final = ("memory", "sqlite", "postgresql", "redis")
# What is run on a mutant, those that are likely to catch it first.
CONTRACT: Final = tuple(
    f"tests/stores/contract/test_{name}.py" for name in ("fence", "guards", "lease", "settle", "progress")
)
OWN: Final = {
    "memory": ("tests/evidence/test_simulation.py",),
    "sqlite": ("tests/stores/test_sqlite_guards.py",),
    "postgresql": ("tests/stores/test_postgres_guards.py", "tests/stores/test_postgres_edges.py"),
    "redis": ("tests/stores/test_redis_short.py",),
}
# Names of tests that are for an engine.
NAMED: Final = {"memory": "memory or simulation", "postgresql": "postgres"}


class Guard(NamedTuple):
    """A look at the attempt as it is written in some files of an engine, and what stands there without it."""

    engine: str
    files: str
    look: str
    instead: str


GUARDS: Final = (
    Guard("memory", "memory/*.py", "if record.job.attempt != attempt:", "if False:"),
    Guard(
        "memory",
        "memory/*.py",
        "(job.attempt, job.worker) == (attempt, worker)",
        "job.worker == worker",
    ),
    Guard(
        "memory",
        "memory/*.py",
        "(failed.attempt, settled_by) == (attempt, worker)",
        "settled_by == worker",
    ),
    Guard("sqlite", "sqlite/sql/*.sql", "attempt = :attempt", "true"),
    Guard("sqlite", "sqlite/*.py", 'attempt == token["attempt"] and ', ""),
    Guard("sqlite", "sqlite/*.py", 'if attempt != token["attempt"]:', "if False:"),
    Guard("postgresql", "postgres/sql/*.sql", "attempt = %(attempt)s", "true"),
    Guard(
        "postgresql",
        "postgres/sql/*.sql",
        "id || ':' || attempt = any(%(tokens)b::text[])",
        "%(tokens)b::text[] is not null",
    ),
    Guard(
        "postgresql",
        "postgres/sql/*.sql",
        "attempt = (%(attempts)s::bigint[])[width_bucket(id, %(ids)s)]",
        "%(attempts)s::bigint[] is not null",
    ),
    Guard("postgresql", "postgres/sql/*.sql", "p.attempt = o.attempt", "true"),
    Guard(
        "postgresql",
        "postgres/*.py",
        "(lease.attempt, lease.worker) == (update.lease.attempt, worker)",
        "lease.worker == worker",
    ),
    Guard(
        "postgresql",
        "postgres/*.py",
        "(lease.attempt, lease.worker) == (settlement.attempt, self._worker)",
        "lease.worker == self._worker",
    ),
    Guard("postgresql", "postgres/*.py", "(last, holder) == (attempt, worker)", "holder == worker"),
    Guard("postgresql", "postgres/*.py", "if last != attempt:", "if False:"),
    Guard("redis", "redis/lua/shared/*.lua", "if header[ATTEMPT] ~= attempt then", "if false then"),
    Guard("redis", "redis/lua/*.lua", "header[ATTEMPT] == attempt and ", ""),
    Guard("redis", "redis/lua/*.lua", "attempt_row[1] == attempt and ", ""),
    # State, attempt and worker are compared as they are packed; a small number takes one byte.
    Guard(
        "redis",
        "redis/lua/shared/*.lua",
        "string.sub(state_part, 1, #before) ~= before",
        "string.sub(state_part, 1, 8) .. '\\1' .. string.sub(state_part, 10, #before) ~= before",
    ),
    Guard("redis", "redis/*.py", "settlement.attempt == 1", "True"),
)

# A line that compares attempts, or looks like it; in SQL that may be an assignment as well.
_COMPARES: Final = re.compile(r"attempt\S* (?:==|!=|~=|<>|<|>) |(?:==|!=|~=|<>) \S*attempt\b", re.IGNORECASE)
_COMPARES_IN_SQL: Final = re.compile(r"attempt\S* (?:=|<>|<|>) |(?:=|<>) \S*attempt\b")
_COMMENT: Final = re.compile(r"^\s*(?:--|#)")
# Such lines that guard no write of a lease holder, by their text.
NO_FENCE: Final = {
    "attempt = attempt + 1,": "the claim counts",
    "set attempt = excluded.attempt,": "a newer note replaces an older one",
    "on conflict (scope, id) do update set attempt = excluded.attempt;": "a newer claim takes the place over",
    "set attempt = h.attempt,": "the job takes the attempt of its lease",
    "where state = 'running' and (worker is null or lease_expires_at is null or started_at is null or "
    "attempt = 0)": "`doctor` looks",
    "or j.attempt = 0": "`doctor` looks",
    "if None in (job.worker, job.started_at, job.lease_expires_at) or job.attempt == 0:": "`doctor` looks",
    "is_held = job.unique_until is UniqueUntil.FINAL or job.attempt == 0": "`doctor` looks",
    "ready_at = run_at if job.attempt == 0 else job.ready_at": "whether the job was ever claimed",
    "header[READY_AT] = header[ATTEMPT] > 0 and header[READY_AT] or header[RUN_AT]": "if it was ever claimed",
    "local holds_key = header[UNIQUE_KEY] and not FINAL[state] and (not header[UNTIL_STARTED] or "
    "header[ATTEMPT] == 0)": "`doctor` looks",
    "local unstarted = job.header[ATTEMPT] > 1 and redis.call('HGET', prefix .. 'unstarted', "
    "job.id)": "whether an earlier attempt may not have begun",
    "if job.header[ATTEMPT] > 1 or job.header[STATE] ~= 'completed' then": "whether an attempt may not have "
    "begun",
    "if attempt == TRIES - 1:": "tries of a transaction",
}


def mutants() -> list[Mutant]:
    """Every look at the attempt, in the order of engines and files."""
    return [mutant for guard in GUARDS for mutant in _of(guard)]


def _of(guard: Guard) -> Iterator[Mutant]:
    for path in _matching(guard.files):
        text = read_source(path)
        for nth, found in enumerate(re.finditer(rf"(?<![\w.]){re.escape(guard.look)}", text), start=1):
            cut = Cut(found.start(), found.end(), guard.instead)
            yield Mutant(
                where=f"{guard.engine}: {path.relative_to(STORES)}",
                removed=guard.look.strip(),
                nth=nth,
                path=path,
                **cut._asdict(),
            )


def forgotten() -> list[str]:
    """Lines that compare attempts and are neither removed here nor listed as no part of the fence."""
    removed: defaultdict[Path, list[Mutant]] = defaultdict(list)
    for mutant in mutants():
        removed[mutant.path].append(mutant)
    return [line for path in _files() for line in _forgotten_in(path, removed[path])]


def _files() -> Iterator[Path]:
    for pattern in dict.fromkeys(guard.files for guard in GUARDS):
        yield from _matching(pattern)


def _matching(pattern: str) -> list[Path]:
    """Return the files that match, or the statements with their fragments."""
    engine, _, rest = pattern.partition("/")
    if engine in DIALECTS and rest == "sql/*.sql":
        return list(statement_paths(engine))
    return [file.relative_to(SOURCE) for file in sorted((SOURCE / STORES).glob(pattern))]


def _forgotten_in(path: Path, removed: Sequence[Mutant]) -> Iterator[str]:
    compares = _COMPARES_IN_SQL if path.suffix == ".sql" else _COMPARES
    at = 0
    for line in read_source(path).splitlines(keepends=True):
        is_removed = any(at <= mutant.start < at + len(line) for mutant in removed)
        if compares.search(line) and not (_COMMENT.match(line) or is_removed or line.strip() in NO_FENCE):
            yield f"{path}: {line.strip()}"
        at += len(line)


class Tests(Workshop):
    """Runs what is about the fence on the engine that a mutant is of."""

    def _time_limit(self, where: str) -> float:
        return 1_800.0  # no mutant of the fence hangs; a machine may be busy

    def _command(self, where: str) -> list[str]:
        engine = where.partition(":")[0]
        plugins = ("no:cacheprovider", "no:xdist", "no:cov", PLUGIN_NAME)
        options = [f"--basetemp={self._home / 'temporary'}", *(f"-p{plugin}" for plugin in plugins)]
        files = [*CONTRACT[:2], *OWN[engine], *CONTRACT[2:]]
        return [
            sys.executable, "-m", "pytest", "-x", "-q", "-k", NAMED.get(engine, engine), *options, *files,
        ]  # fmt: skip


def run(engines: Sequence[str], only: str) -> list[tuple[Mutant, str | None]]:
    """Each mutant of these engines with the test that has caught it."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
    results = []
    with TemporaryDirectory(prefix="forebay-fence-", dir=memory if memory.is_dir() else None) as folder:
        names = ("src", "tests", "evidence", "docs", "tools", "benchmarks", "examples")
        tests = Tests(Path(folder, "0"), copied(Path(folder, "tree"), names))
        for engine in engines:
            if (caught := tests.test_untouched(f"{engine}:")) is not None:
                raise SystemExit(f"the tests fail with the fence as it is: {caught}")
            for mutant in mutants():
                if mutant.where.startswith(f"{engine}:") and only in mutant.name:
                    results.append((mutant, tests.test(mutant)))
                    print(as_row(*results[-1]), flush=True)
    return results


def as_row(mutant: Mutant, caught: str | None) -> str:
    engine, _, file = mutant.where.partition(": ")
    return f"| {engine} | {file} | `{mutant.label}` | {caught or 'NOT CAUGHT'} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Take the attempt out of the fence, one look at a time.")
    parser.add_argument("--engine", action="append", choices=ENGINES, help="several may be named")
    parser.add_argument("--only", default="", metavar="NAME", help="those with this in their name")
    parser.add_argument("--list", action="store_true", help="say what would be removed, and run nothing")
    options = parser.parse_args(arguments)
    engines = options.engine or ENGINES
    if options.list:
        for mutant in mutants():
            if mutant.where.partition(":")[0] in engines and options.only in mutant.name:
                print(mutant.name)
        return 0
    print("| engine | where | without | caught by |\n|---|---|---|---|")
    results = run(engines, options.only)
    left = sum(caught is None for _, caught in results)
    print(f"\n{len(results)} looks at the attempt removed, {left} not caught")
    return 1 if left or forgotten() else 0


if __name__ == "__main__":
    sys.exit(main())
