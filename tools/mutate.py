"""Remove each guard of the SQL engines in turn, and see the contract suite fail.

    python tools/mutate.py                     every mutant, a table and a summary; fails if one survives
    python tools/mutate.py --engine postgres   those of one engine
    python tools/mutate.py --only claim        those of statements and functions with this in their name
    python tools/mutate.py --list              what would be removed, without running anything
    python tools/mutate.py --json              the results for programs
    python tools/mutate.py --equivalents       what is listed as equivalent; fails if one is caught after all

It removes, one at a time: each condition of each statement that writes or that a write relies on, each
assignment of its SET list, and each call or stored value of the functions that settle, insert, sweep and
update. Statements are taken with their fragments: a mutant lacks a condition in one of those that include
it. A mutant is made in a copy of the package in a temporary folder, never in the tree. It is caught when a
test of `tests/stores/contract` fails on it, or of the files about this engine alone, or when the tests do not
end in time.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Final, Literal, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.statements import SOURCE, STORES, read_source, replace_source, statement_paths

ROOT: Final = Path(__file__).resolve().parent.parent
ENGINES: Final = ("sqlite", "postgres")
SUITE: Final = Path("tests/stores/contract")
# Tests of one engine: each guarded statement by itself, and abilities that only this engine has. Only on
# SQLite a store sees that a worker dies, so the tests of its leases then are of that engine.
OWN: Final = {
    "sqlite": ("sqlite_guards", "sqlite_liveness"),
    "postgres": (
        "postgres_guards", "postgres_edges", "postgres_settle_and_claim", "postgres_insert_fast",
        "postgres_claims", "postgres_resolve_inline", "postgres_inserts",
    ),
}  # fmt: skip
# Names of tests; a pooler before the same server shows nothing more about a statement.
SELECTED: Final = {"sqlite": "sqlite", "postgres": "postgres and not pooled"}
TIME_LIMIT_SECONDS: Final = {"sqlite": 180.0, "postgres": 900.0}

MODULES: Final = (
    "settle_and_claim", "settle_and_claim_fast", "claim", "settle", "insert", "insert_fast", "leases",
    "maintenance", "job_ends_and_removal", "job_actions", "queues", "transaction", "progress",
)  # fmt: skip
# Statements that only answer readers, and those that build the schema. They guard no write.
LEFT_OUT: Final = frozenset(
    {
        "archive", "audit", "audit_chain", "audit_rest", "check_counts", "check_indexes",
        "check_jobs", "check_keys", "check_planning", "command", "commands_pending", "counts", "events",
        "failed_attempts", "index_entries_read", "lane_counts", "peek", "position_ahead", "progress",
        "rank_span", "schema_add", "schema_create", "schema_exists", "schema_number", "search",
        "search_hashes", "search_moment", "search_planning", "search_reached", "search_window",
        "server_usage", "throughput", "workers",
    }
)  # fmt: skip
# Hints that wake sleepers: losing one costs delay and never a job, and the contract suite sleeps nowhere.
HINTS: Final = frozenset({"needs_wakeup"})
_HINT: Final = re.compile(r" indexed by \w+")

# Which files to try first, by what was changed. The order decides only how soon a mutant is caught.
LIKELY: Final = (
    ("leases_of_dead*", ("sqlite_liveness", "sweep")),
    ("progress*", ("progress",)),
    ("command*", ("commands",)),
    ("claim*", ("claim", "order", "fence")),
    ("candidates*", ("sqlite_guards", "claim", "order")),
    ("renew*", ("lease", "fence")),
    ("*sweep*", ("sweep", "lease")),
    ("leases.*", ("sweep", "lease")),
    ("key*", ("keys",)),
    ("*revive*", ("revive",)),
    ("update_job*", ("operators",)),
    ("*cancel*", ("operators",)),
    ("job_actions.*", ("operators", "revive")),
    ("queues.*", ("queues",)),
    ("*prun*", ("prune",)),
    ("*promote*", ("promote",)),
    ("*resc*", ("order",)),
    ("scan*", ("order",)),
    ("insert.insert_follow_ups*", ("follow_ups",)),
    ("insert.*", ("insert", "keys", "order")),
    ("acquire_maintenance*", ("maintenance",)),
    ("heartbeat*", ("maintenance", "read")),
    ("audit*", ("audit_log",)),
    ("event*", ("read", "maintenance")),
    ("*", ("settle", "fence", "transitions")),
)


class Equivalent(NamedTuple):
    """Mutants that behave like the engine itself: where they are, what is removed, and why it is the same."""

    where: tuple[str, ...]
    removed: tuple[str, ...]
    why: str
    engine: str = "sqlite"


EQUIVALENTS: Final = (
    Equivalent(
        ("job.sql", "job_state.sql", "locate.sql", "lease_holder.sql"),
        ("seq = :seq", "has_custom_id = 1"),
        "the id names the job; the seq, and the index of ids that were brought, are the quick way to it",
    ),
    Equivalent(("job.sql", "job_state.sql"), ("id = :job_id",), "`locate` has just found this seq by the id"),
    Equivalent(
        ("progress_log_add.sql",),
        ("kind = 'log'",),
        "any number that is higher than the last line's puts it last",
    ),
    Equivalent(("revive_dead.sql",), ("state = 'dead'",), "the table has a check that lets in nothing else"),
    Equivalent(
        ("expired.sql", "keys_prune.sql", "rescore_due.sql", "expired_leases.sql"),
        ("expires_at is not null", "held_until is not null", "rescore_at is not null", "state = 'running'"),
        "names the partial index; rows outside of it fail the next condition anyway",
    ),
    Equivalent(
        ("pending_cancels.sql",),
        ("state = 'running'",),
        "a job with a stored request to be cancelled never waits",
    ),
    Equivalent(
        ("uncounted.sql", "last_seq.sql"),
        ("queue = ''", "state = 'counted'"),
        "each of the two names the one row that counts up to where",
    ),
    Equivalent(
        ("job_actions._insert_live",),
        ("tx.get_or_create_queue(target.name)",),
        "the queue is also made by `scoring`, when the job's place is worked out",
    ),
    Equivalent(
        ("lanes_claimable.sql", "lanes_among.sql"),
        (
            "state = 'pending'",
            "state = 'pending' (2)",
            "queue = :queue",
            "queue = :queue (2)",
            "lane > 'l~'",
            "lane > lanes.lane",
            "lanes.lane is not null",
            "lane is not null",
            "lane = value",
            "exists ( select 1 from forebay_jobs where state = 'pending' and queue = :queue "
            "and lane = value )",
        ),
        "says which lanes to read; a claim in an empty lane finds nothing",
    ),
    Equivalent(
        ("insert.insert_all", "transaction.count_new", "transaction.defer_counting"),
        (
            "tx.defer_counting(len(results))",
            "self.has_new_jobs = False",
            "self.cache.uncounted = 0",
            "self.cache.uncounted += jobs",
            "self.count_new()",
        ),
        "says when new jobs are counted; each move counts before, and counting again finds none",
    ),
    Equivalent(
        ("complete_remove.sql",),
        ("seq in (select value from json_each(:seqs))",),
        "the quick way to the jobs that have a copy, and none but these have one",
    ),
    Equivalent(
        ("settle.complete",),
        (
            "groups[shape][seq] = settlement.job_id",
            'tx.run("complete", values)',
        ),
        "what is not completed together is then settled one by one",
    ),
    Equivalent(
        ("maintenance.prune",),
        ('tx.run("keys_prune", {"now": tx.now, "limit": limit})',),
        "an expired idempotency key has no holder, there or not; removing it saves room",
    ),
    Equivalent(
        ("transaction.refresh",),
        ("self._version = version",),
        "the cache is then emptied more often than needed",
    ),
    Equivalent(
        ("transaction.flush_counts",),
        ("self._counts.clear()",),
        "the transaction ends with this, and its counts",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One thing removed from one place."""

    where: str
    removed: str
    nth: int  # among those of the same text in the same place
    path: Path
    start: int
    end: int
    instead: str

    @property
    def engine(self) -> str:
        return self.path.parts[2]

    @property
    def label(self) -> str:
        return self.removed + (f" ({self.nth})" if self.nth > 1 else "")

    @property
    def name(self) -> str:
        return f"{self.where}: {self.label}"

    def apply(self, text: str) -> str:
        # A statement that names a partial index cannot be run without the condition of that index.
        return _HINT.sub("", text[: self.start] + self.instead + text[self.end :])


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    mutant: Mutant
    outcome: Literal["caught", "survived", "equivalent"]
    by: str


class Cut(NamedTuple):
    """A piece of a text, and its replacement."""

    start: int
    end: int
    instead: str


# ------------------------------------------------------------------ what to remove from a statement

_COMMENT: Final = re.compile(r"--[^\n]*")
_TEXT: Final = re.compile(r"'[^'\n]*'")
_WORD: Final = re.compile(r"(?<![:\w])[a-z_]+|[(),;]")
_ENDS: Final = frozenset(
    {"where", "order", "limit", "offset", "for", "returning", "group", "union", "having", "on", "do", ";"}
)
_TARGET: Final = re.compile(r"(?:insert into|(?<!do )update) (\S+)(?: as)?(?: (?!set\b)(\w+))?")


def conditions(statement: str) -> Iterator[Cut]:
    """Each condition of each `where`, also of inner ones; it becomes `true`."""
    for start, end in _clauses(statement, "where"):
        for left, right in _split(statement, start, end, "and"):
            yield Cut(left, right, _always(statement[left:right]))


def assignments(statement: str) -> Iterator[Cut]:
    """Each assignment of each `set`; the column keeps its value."""
    for start, end in _clauses(statement, "set"):
        *_, target = _TARGET.finditer(_bare(statement), 0, start)
        for left, right in _split(statement, start, end, ","):
            column = statement[left:right].split("=", 1)[0].strip()
            yield Cut(left, right, f"{column} = {_kept(column, target)}")


def _always(condition: str) -> str:
    # PostgreSQL has a type for a parameter only where it is used with one, so the use stays.
    return f"(true or ({condition}))" if "%(" in condition else "true"


def _kept(column: str, target: re.Match[str]) -> str:
    """Return the old value; a column of PostgreSQL is qualified, since a source may have the same one."""
    if not target[1].startswith("forebay."):
        return column
    table = target[2] or target[1].removeprefix("forebay.")
    return re.sub(r"\w+", lambda name: f"{table}.{name[0]}", column)


def _clauses(statement: str, kind: str) -> Iterator[tuple[int, int]]:
    words = list(_WORD.finditer(_bare(statement)))
    ends = _ENDS | {"from"} if kind == "set" else _ENDS
    for number, word in enumerate(words):
        if word[0] == kind:
            end = _end_of_clause(words[number + 1 :], len(statement), ends)
            # Before `do`, a `where` names the partial unique index of `on conflict`: no guard.
            if not statement.startswith("do ", end):
                yield word.end(), end


def _end_of_clause(words: Sequence[re.Match[str]], default: int, ends: frozenset[str]) -> int:
    depth = 0
    for word in words:
        depth += (word[0] == "(") - (word[0] == ")")
        if depth < 0 or (depth == 0 and word[0] in ends):
            return word.start()
    return default


def _split(statement: str, start: int, end: int, at: str) -> Iterator[tuple[int, int]]:
    """The pieces between the separators that stand in no brackets, without the blanks around them."""
    bare, depth, left = _bare(statement), 0, start
    for word in _WORD.finditer(bare, start, end):
        depth += (word[0] == "(") - (word[0] == ")")
        if depth == 0 and word[0] == at:
            yield _trimmed(bare, left, word.start())
            left = word.end()
    yield _trimmed(bare, left, end)


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())


def _bare(statement: str) -> str:
    """The statement with blanks for its comments and quotes for its strings, so that every place stays."""
    text = _COMMENT.sub(lambda found: " " * len(found[0]), statement)
    return _TEXT.sub(lambda found: "'" * len(found[0]), text)


# ------------------------------------------------------------------ what to remove from a module


def steps(module: str) -> Iterator[tuple[str, Cut]]:
    """Each call that is made for its effect and each value that is stored in a place that outlives its
    function, with the function that does it."""
    starts = _line_starts(module)
    for function in _functions(ast.parse(module)):
        for node in ast.walk(function):
            if isinstance(node, ast.stmt) and _is_step(node):
                start = starts[node.lineno - 1] + node.col_offset
                end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
                yield function.name, Cut(start, end, "pass")


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in tree.body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        yield from (each for each in inside if isinstance(each, ast.FunctionDef) and each.name != "__init__")


def _is_step(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Call()):
            return True
        case ast.Assign(targets=[ast.Attribute(attr=name)]):
            return name not in HINTS
        case ast.Assign(targets=[ast.Subscript()]) | ast.AugAssign(target=ast.Attribute() | ast.Subscript()):
            return True
        case _:
            return False


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


# ------------------------------------------------------------------ all mutants


def all_mutants(source: Path = SOURCE) -> list[Mutant]:
    """Return all mutants, in the order of engines and files."""
    found = [
        each for engine in ENGINES for each in (*_of_statements(engine, source), *_of_modules(engine, source))
    ]
    seen: Counter[tuple[str, str]] = Counter()
    mutants = []
    for where, path, removed, cut in found:
        seen[where, removed] += 1
        mutants.append(
            Mutant(
                where=where,
                removed=removed,
                nth=seen[where, removed],
                path=path,
                start=cut.start,
                end=cut.end,
                instead=cut.instead,
            )
        )
    return mutants


def _of_statements(engine: str, source: Path) -> Iterator[tuple[str, Path, str, Cut]]:
    for path, text in statement_paths(engine, source).items():
        if path.stem not in LEFT_OUT:
            for cut in [*assignments(text), *conditions(text)]:
                yield f"{engine}/{path.name}", path, _line(text, cut), cut


def _of_modules(engine: str, source: Path) -> Iterator[tuple[str, Path, str, Cut]]:
    for module in MODULES:
        path = STORES / engine / f"{module}.py"
        if (source / path).exists():
            text = read_source(path, source)
            for function, cut in steps(text):
                yield f"{engine}/{module}.{function}", path, _line(text, cut), cut


def _line(text: str, cut: Cut) -> str:
    return " ".join(text[cut.start : cut.end].split())


def equivalent(mutant: Mutant) -> Equivalent | None:
    """Return the entry of EQUIVALENTS for this mutant, or None."""
    for entry in EQUIVALENTS:
        where = mutant.where.removeprefix(f"{entry.engine}/")
        if mutant.engine == entry.engine and where in entry.where and mutant.label in entry.removed:
            return entry
    return None


# ------------------------------------------------------------------ running the suite on a mutant

# Loaded into each run: it checks that the mutant is what is tested, and says which test failed first.
PLUGIN: Final = """
import os

import forebay

HOME = os.environ["FOREBAY_MUTANT"]


def pytest_configure(config):
    assert forebay.__file__.startswith(HOME), f"{forebay.__file__} is tested, and not the mutant"


def pytest_runtest_logreport(report):
    if report.failed:
        with open(os.path.join(HOME, "failed"), "a", encoding="utf-8") as file:
            print(report.nodeid, file=file)
"""
PLUGIN_NAME: Final = "mutant_plugin"


class Workshop:
    """A copy of the package in which one mutant at a time is made and tested."""

    def __init__(self, home: Path, tree: Path) -> None:
        self._home = home
        self._package = home / "src"
        shutil.copytree(tree, home)
        # By hash, because a file that is changed twice in a second may keep its size and time.
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(str(self._package), quiet=1, invalidation_mode=mode)
        (self._package / f"{PLUGIN_NAME}.py").write_text(PLUGIN, encoding="utf-8")

    def test(self, mutant: Mutant) -> str | None:
        """Return the test that caught the mutant; None if it survived."""
        text = mutant.apply(read_source(mutant.path, self._package))
        with replace_source(mutant.path, text, self._package):
            return self._run(mutant.where)

    def test_untouched(self, where: str = "") -> str | None:
        """Return the test that fails without a mutant, or None."""
        return self._run(where)

    def _run(self, where: str) -> str | None:
        failed = self._home / "failed"
        failed.unlink(missing_ok=True)
        try:
            done = subprocess.run(
                self._command(where),
                cwd=self._home,
                env=self._environment(),
                capture_output=True,
                text=True,
                timeout=self._time_limit(where),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "the time limit"
        if done.returncode == 0:
            return None
        if failed.exists():
            return _short(failed.read_text(encoding="utf-8").splitlines()[0])
        if done.returncode == 1:
            raise RuntimeError(f"no test is named as failed:\n{done.stdout}{done.stderr}")
        raise RuntimeError(f"pytest could not run (code {done.returncode}):\n{done.stdout}{done.stderr}")

    def _time_limit(self, where: str) -> float:
        return TIME_LIMIT_SECONDS[where.partition("/")[0]]

    def _command(self, where: str) -> list[str]:
        plugins = ("no:cacheprovider", "no:xdist", "no:cov", PLUGIN_NAME)
        options = [f"--basetemp={self._home / 'temporary'}", *(f"-p{plugin}" for plugin in plugins)]
        return [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-k",
            SELECTED[where.partition("/")[0]],
            *options,
            *suite_for(where, self._home),
        ]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(self._package),
            "PYTHONDONTWRITEBYTECODE": "1",
            "FOREBAY_MUTANT": str(self._home),
            # What makes a mutant fail is no example for the engine itself.
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self._home / "hypothesis"),
        }


def suite_for(where: str, tree: Path = ROOT) -> list[str]:
    """The files of the contract suite, those most likely to catch something there first."""
    engine, _, place = where.partition("/")
    own = [tree / "tests/stores" / f"test_{name}.py" for name in OWN[engine]]
    found = [*sorted((tree / SUITE).glob("test_*.py")), *own]
    files = {file.stem.removeprefix("test_"): str(file.relative_to(tree)) for file in found}
    likely = [name for pattern, names in LIKELY if fnmatchcase(place, pattern) for name in names]
    # Threads and processes take longest, and catch what one thread catches sooner.
    rest = sorted(files, key=lambda name: name in ("concurrency", "sqlite_liveness"))
    first = (f"{engine}_guards", "guards")
    return [files[name] for name in dict.fromkeys([*first, *likely, *rest]) if name in files]


def _short(test: str) -> str:
    return test.removeprefix(f"{SUITE}/")


def run_all(engines: Sequence[str], only: str, jobs: int, *, doubting: bool = False) -> list[Result]:
    """Test all mutants outside the list of equivalents, or only those in it, `jobs` at a time."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
    with TemporaryDirectory(prefix="forebay-mutate-", dir=memory if memory.is_dir() else None) as folder:
        tree = copied(Path(folder, "tree"))
        free: SimpleQueue[Workshop] = SimpleQueue()
        for number in range(jobs):
            free.put(Workshop(Path(folder, str(number)), tree))
        _check_untouched(free, engines)
        mutants = [
            mutant
            for mutant in all_mutants(tree / "src")
            if mutant.engine in engines and only in mutant.where
        ]
        if doubting:
            mutants = [mutant for mutant in mutants if equivalent(mutant) is not None]
        with ThreadPoolExecutor(jobs) as pool:
            answers = pool.map(lambda mutant: _judge(free, mutant, doubting), mutants)
            return [_report(result, number, len(mutants)) for number, result in enumerate(answers, start=1)]


def copied(tree: Path, names: Sequence[str] = ("src", "tests")) -> Path:
    """Copy package and tests once, since the real ones may change meanwhile."""
    for name in names:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    return tree


def _check_untouched(free: SimpleQueue[Workshop], engines: Sequence[str]) -> None:
    workshop = free.get()
    for engine in engines:
        if (caught := workshop.test_untouched(f"{engine}/")) is not None:
            raise SystemExit(f"the suite fails without a mutant: {caught}")
    free.put(workshop)


def _judge(free: SimpleQueue[Workshop], mutant: Mutant, doubting: bool) -> Result:
    entry = equivalent(mutant)
    if entry is not None and not doubting:
        return Result(mutant=mutant, outcome="equivalent", by=entry.why)
    workshop = free.get()
    try:
        caught = workshop.test(mutant)
    finally:
        free.put(workshop)
    if caught is not None:
        return Result(mutant=mutant, outcome="caught", by=caught)
    return Result(mutant=mutant, outcome="equivalent" if entry else "survived", by=entry.why if entry else "")


def _report(result: Result, number: int, total: int) -> Result:
    """Print the progress on a terminal, and each survivor at once."""
    is_terminal = sys.stderr.isatty()
    if is_terminal:
        print("\r\033[K", end="", file=sys.stderr)
    if result.outcome == "survived":
        print(f"survived: {result.mutant.name}", file=sys.stderr, flush=True)
    if is_terminal:
        print(f"{number}/{total} {result.mutant.name:.90}", end="", file=sys.stderr, flush=True)
    return result


# ------------------------------------------------------------------ the program


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    engines = options.engine or ENGINES
    if options.list:
        for mutant in all_mutants():
            if mutant.engine in engines and options.only in mutant.where:
                print(mutant.name)
        return 0
    results = run_all(engines, options.only, options.jobs, doubting=options.equivalents)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print(as_json(results) if options.json else as_table(results))
    wrong = "caught" if options.equivalents else "survived"
    return 1 if any(result.outcome == wrong for result in results) else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Remove each guard in turn and see the contract suite fail.")
    parser.add_argument("--engine", action="append", choices=ENGINES, help="several may be named")
    parser.add_argument("--only", default="", metavar="NAME", help="statements and functions named like this")
    parser.add_argument("--list", action="store_true", help="say what would be removed, and run nothing")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--equivalents", action="store_true", help="run what is listed as equivalent instead")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="mutants at a time"
    )
    return parser.parse_args(arguments)


def as_table(results: Sequence[Result]) -> str:
    lines = ["| statement or step | removed | caught by |", "|---|---|---|"]
    for result in results:
        mutant = result.mutant
        by = result.by if result.outcome == "caught" else f"{result.outcome.upper()} {result.by}".strip()
        lines.append(f"| {mutant.where} | `{mutant.label}` | {by} |")
    return "\n".join([*lines, "", summary(results)])


def summary(results: Sequence[Result]) -> str:
    number = Counter(result.outcome for result in results)
    return (
        f"{len(results)} mutants, {number['caught']} caught, {number['survived']} survived, "
        f"{number['equivalent']} equivalent"
    )


def as_json(results: Sequence[Result]) -> str:
    rows = [
        {"where": each.mutant.where, "removed": each.mutant.label} | {"outcome": each.outcome, "by": each.by}
        for each in results
    ]
    return json.dumps({"summary": summary(results), "mutants": rows}, indent=2, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main())
