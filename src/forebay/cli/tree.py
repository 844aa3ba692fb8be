"""`forebay jobs tree`: a job and what depends on it, or what it depends on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import click
import msgspec

from forebay.cli.opening import Desk
from forebay.cli.options import at_store
from forebay.cli.output import Output, table, text
from forebay.domain.job import Job, JobId
from forebay.domain.query import MAX_PAGE
from forebay.domain.workflow import Edge
from forebay.errors import JobNotFound
from forebay.stores.protocol import Reader

MOST: Final = 10_000
SHOWN: Final = 100


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a graph that was looked at. `is_whole` is false where it went on."""

    root: JobId
    jobs: dict[JobId, Job]
    edges: dict[JobId, list[Edge]]  # by the end that is nearer to the root
    is_up: bool
    is_whole: bool

    def next_of(self, job_id: JobId) -> Iterator[tuple[JobId, Edge]]:
        for edge in self.edges.get(job_id, ()):
            yield (edge.parent if self.is_up else edge.child), edge


@click.command()
@click.argument("job_id", metavar="ID")
@click.option("--up", is_flag=True, help="What it depends on, instead of what depends on it.")
@click.option(
    "--limit", type=click.IntRange(1, MOST), default=200, show_default=True, help="At most this many."
)
@at_store()
def tree(desk: Desk, out: Output, job_id: str, up: bool, limit: int) -> None:
    """Show what depends on a job, and what depends on that."""
    graph = graph_of(desk.reader, JobId(job_id), limit, is_up=up)
    out.answer({**_branch(graph, graph.root, None, set()), "is_whole": graph.is_whole}, lambda: _show(graph))


class Edges(NamedTuple):
    """The edges of one job, to its parents and from its dependants."""

    parents: list[Edge]
    dependants: list[Edge]


def edges_of(reader: Reader, job_id: JobId) -> Edges:
    return Edges(reader.parents([job_id]), reader.dependants([job_id], limit=SHOWN))


def edges_json(edges: Edges) -> dict[str, Any]:
    """What a job depends on and what depends on it, up to a hundred."""
    return {
        "depends_on": [_tie(edge, edge.parent) for edge in edges.parents],
        "dependants": [_tie(edge, edge.child) for edge in edges.dependants],
    }


def _tie(edge: Edge, other: JobId) -> dict[str, str]:
    return {"id": other, "edge": edge.state.value, "on_failure": edge.on_failure.value}


def show_edges(edges: Edges) -> None:
    if edges.parents:
        rows = [(edge.parent, edge.state, edge.on_failure) for edge in edges.parents[:SHOWN]]
        table(("id", "edge", "on failure"), rows, title="Depends on")
    if edges.dependants:
        rows = [(edge.child, edge.state, edge.on_failure) for edge in edges.dependants]
        table(("id", "edge", "on failure"), rows, title="Dependants")


def graph_of(reader: Reader, root: JobId, limit: int, *, is_up: bool) -> Graph:
    """The jobs around one, level by level; raises JobNotFound."""
    edges: dict[JobId, list[Edge]] = defaultdict(list)
    seen, level = {root: None}, [root]
    while level and len(seen) < limit:
        found = reader.parents(level) if is_up else _dependants(reader, level, limit - len(seen))
        for edge in found:
            edges[edge.child if is_up else edge.parent].append(edge)
        ends = dict.fromkeys(edge.parent if is_up else edge.child for edge in found)
        level = [job_id for job_id in ends if job_id not in seen][: limit - len(seen)]
        seen |= dict.fromkeys(level)
    jobs = _jobs(reader, list(seen))
    if root not in jobs:
        raise JobNotFound(f"there is no job {root}; it may have been pruned")
    return Graph(root=root, jobs=jobs, edges=edges, is_up=is_up, is_whole=not level)


def _dependants(reader: Reader, ids: Sequence[JobId], limit: int) -> list[Edge]:
    found: list[Edge] = []
    while len(found) < limit:
        page = reader.dependants(ids, limit=MAX_PAGE, after=found[-1] if found else None)
        found += page
        if len(page) < MAX_PAGE:
            break
    return found


def _jobs(reader: Reader, ids: Sequence[JobId]) -> dict[JobId, Job]:
    found: dict[JobId, Job] = {}
    for first in range(0, len(ids), MAX_PAGE):
        found |= {job.id: job for job in reader.jobs(ids[first : first + MAX_PAGE]) if job is not None}
    return found


def _branch(graph: Graph, job_id: JobId, edge: Edge | None, shown: set[JobId]) -> dict[str, Any]:
    """A job with what is behind it; one that stands elsewhere already is only named."""
    job = graph.jobs.get(job_id)
    known = {"task": None, "state": None} if job is None else {"task": job.task, "state": job.state.value}
    tied = {} if edge is None else {"on_failure": edge.on_failure.value, "edge": edge.state.value}
    is_again = job_id in shown
    shown.add(job_id)
    behind = [] if is_again else [_branch(graph, each, by, shown) for each, by in graph.next_of(job_id)]
    name = "depends_on" if graph.is_up else "dependants"
    return {"id": job_id, **known, **tied, **({"again": True} if is_again else {name: behind})}


def _show(graph: Graph) -> None:
    for line in _lines(graph, graph.root, None, "", set()):
        click.echo(line)
    if not graph.is_whole:
        click.echo("There is more: --limit shows more of it.")


def _lines(graph: Graph, job_id: JobId, edge: Edge | None, indent: str, shown: set[JobId]) -> Iterator[str]:
    job = graph.jobs.get(job_id)
    words = [job_id, "forgotten" if job is None else f"{text(job.task)}  {job.state}"]
    if edge is not None:
        words.append(f"[{edge.state}, {edge.on_failure}]")
    if job_id in shown:
        yield f"{indent}{'  '.join(words)}  (see above)"
        return
    shown.add(job_id)
    yield f"{indent}{'  '.join(words)}"
    for each, by in graph.next_of(job_id):
        yield from _lines(graph, each, by, indent + "  ", shown)
