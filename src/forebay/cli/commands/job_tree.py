"""`forebay jobs tree`: the dependency graph around a job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import click
import msgspec

from forebay.cli.options import with_store
from forebay.cli.output import Output, print_table, text
from forebay.cli.store_session import StoreSession
from forebay.domain.dependencies import Edge
from forebay.domain.job import Job, JobId
from forebay.domain.job_query import MAX_PAGE
from forebay.errors import JobNotFound
from forebay.stores.contract.reader import Reader

MAX_LIMIT: Final = 10_000
MAX_SHOWN: Final = 100


class JobGraph(msgspec.Struct, frozen=True, kw_only=True):
    """Part of a dependency graph. `is_complete` is false if the limit was reached."""

    root: JobId
    jobs: dict[JobId, Job]
    edges: dict[JobId, list[Edge]]  # by the end nearer to the root
    is_up: bool
    is_complete: bool

    def neighbours(self, job_id: JobId) -> Iterator[tuple[JobId, Edge]]:
        for edge in self.edges.get(job_id, ()):
            yield (edge.parent if self.is_up else edge.child), edge


@click.command()
@click.argument("job_id", metavar="ID")
@click.option("--up", is_flag=True, help="Show what it depends on, instead of its dependants.")
@click.option(
    "--limit", type=click.IntRange(1, MAX_LIMIT), default=200, show_default=True, help="At most this many."
)
@with_store()
def tree(session: StoreSession, out: Output, job_id: str, up: bool, limit: int) -> None:
    """Show the dependants of a job, and their dependants."""
    graph = load_graph(session.reader, JobId(job_id), limit, is_up=up)
    out.print_result(
        {**_branch_json(graph, graph.root, None, set()), "is_complete": graph.is_complete},
        lambda: _print_graph(graph),
    )


class JobEdges(NamedTuple):
    """Edges of one job, to its parents and from its dependants."""

    parents: list[Edge]
    dependants: list[Edge]


def load_edges(reader: Reader, job_id: JobId) -> JobEdges:
    return JobEdges(reader.parents([job_id]), reader.dependants([job_id], limit=MAX_SHOWN))


def edges_json(edges: JobEdges) -> dict[str, Any]:
    """Return the parents and dependants of a job, up to a hundred."""
    return {
        "depends_on": [_edge_json(edge, edge.parent) for edge in edges.parents],
        "dependants": [_edge_json(edge, edge.child) for edge in edges.dependants],
    }


def _edge_json(edge: Edge, other: JobId) -> dict[str, str]:
    return {"id": other, "edge": edge.state.value, "on_failure": edge.on_failure.value}


def print_edges(edges: JobEdges) -> None:
    if edges.parents:
        rows = [(edge.parent, edge.state, edge.on_failure) for edge in edges.parents[:MAX_SHOWN]]
        print_table(("id", "edge", "on failure"), rows, title="Depends on")
    if edges.dependants:
        rows = [(edge.child, edge.state, edge.on_failure) for edge in edges.dependants]
        print_table(("id", "edge", "on failure"), rows, title="Dependants")


def load_graph(reader: Reader, root: JobId, limit: int, *, is_up: bool) -> JobGraph:
    """Load the jobs around a job, level by level; raise JobNotFound."""
    edges: dict[JobId, list[Edge]] = defaultdict(list)
    seen, level = {root: None}, [root]
    while level and len(seen) < limit:
        found = reader.parents(level) if is_up else _load_dependants(reader, level, limit - len(seen))
        for edge in found:
            edges[edge.child if is_up else edge.parent].append(edge)
        ends = dict.fromkeys(edge.parent if is_up else edge.child for edge in found)
        level = [job_id for job_id in ends if job_id not in seen][: limit - len(seen)]
        seen |= dict.fromkeys(level)
    jobs = _load_jobs(reader, list(seen))
    if root not in jobs:
        raise JobNotFound(f"there is no job {root}; it may have been pruned")
    return JobGraph(root=root, jobs=jobs, edges=edges, is_up=is_up, is_complete=not level)


def _load_dependants(reader: Reader, ids: Sequence[JobId], limit: int) -> list[Edge]:
    found: list[Edge] = []
    while len(found) < limit:
        page = reader.dependants(ids, limit=MAX_PAGE, after=found[-1] if found else None)
        found += page
        if len(page) < MAX_PAGE:
            break
    return found


def _load_jobs(reader: Reader, ids: Sequence[JobId]) -> dict[JobId, Job]:
    found: dict[JobId, Job] = {}
    for first in range(0, len(ids), MAX_PAGE):
        found |= {job.id: job for job in reader.jobs(ids[first : first + MAX_PAGE]) if job is not None}
    return found


def _branch_json(graph: JobGraph, job_id: JobId, edge: Edge | None, shown: set[JobId]) -> dict[str, Any]:
    """Return a job with its branch; a job that was shown before is only named."""
    job = graph.jobs.get(job_id)
    job_fields = (
        {"task": None, "state": None} if job is None else {"task": job.task, "state": job.state.value}
    )
    edge_fields = {} if edge is None else {"on_failure": edge.on_failure.value, "edge": edge.state.value}
    is_again = job_id in shown
    shown.add(job_id)
    branch = (
        [] if is_again else [_branch_json(graph, each, by, shown) for each, by in graph.neighbours(job_id)]
    )
    name = "depends_on" if graph.is_up else "dependants"
    return {"id": job_id, **job_fields, **edge_fields, **({"again": True} if is_again else {name: branch})}


def _print_graph(graph: JobGraph) -> None:
    for line in _format_lines(graph, graph.root, None, "", set()):
        click.echo(line)
    if not graph.is_complete:
        click.echo("The graph is larger: raise --limit to see more.")


def _format_lines(
    graph: JobGraph, job_id: JobId, edge: Edge | None, indent: str, shown: set[JobId]
) -> Iterator[str]:
    job = graph.jobs.get(job_id)
    parts = [job_id, "deleted" if job is None else f"{text(job.task)}  {job.state}"]
    if edge is not None:
        parts.append(f"[{edge.state}, {edge.on_failure}]")
    if job_id in shown:
        yield f"{indent}{'  '.join(parts)}  (see above)"
        return
    shown.add(job_id)
    yield f"{indent}{'  '.join(parts)}"
    for each, by in graph.neighbours(job_id):
        yield from _format_lines(graph, each, by, indent + "  ", shown)
