/** A workflow as a picture: each job to the right of those that it waits for. */

import { enc, get } from "../api";
import { useLoad } from "../load";
import { addressOf } from "../router";
import { Panel, Waiting } from "../ui";
import type { GraphView, JobListItem } from "../types";

const WIDE = 190;
const HIGH = 44;
const GAP_X = 56;
const GAP_Y = 14;

export interface Placed {
  job: JobListItem;
  x: number;
  y: number;
}

/** Where each job stands: in the column after the last of its parents, in the order it was found. */
export function layout(graph: GraphView): Map<string, Placed> {
  const parents = new Map<string, string[]>();
  for (const edge of graph.edges) parents.set(edge.child, [...(parents.get(edge.child) ?? []), edge.parent]);
  const columns = new Map<string, number>();
  const columnOf = (id: string, path: Set<string>): number => {
    const known = columns.get(id);
    if (known !== undefined) return known;
    if (path.has(id)) return 0; // a graph of jobs has no circle, and a picture must not hang on one
    path.add(id);
    const column = Math.max(-1, ...(parents.get(id) ?? []).map((parent) => columnOf(parent, path))) + 1;
    path.delete(id);
    columns.set(id, column);
    return column;
  };
  const heights: number[] = [];
  const placed = new Map<string, Placed>();
  for (const job of graph.jobs) {
    const column = columnOf(job.id, new Set());
    const row = heights[column] ?? 0;
    heights[column] = row + 1;
    placed.set(job.id, { job, x: column * (WIDE + GAP_X), y: row * (HIGH + GAP_Y) });
  }
  const most = Math.max(...heights.filter(Boolean), 1);
  for (const one of placed.values()) {
    const column = columns.get(one.job.id)!;
    one.y += ((most - heights[column]!) * (HIGH + GAP_Y)) / 2;
  }
  return placed;
}

export function GraphPanel({ id }: { id: string }) {
  const found = useLoad<GraphView>(() => get(`/v1/jobs/${enc(id)}/graph?limit=200`), [id]);
  const graph = found.data;
  return (
    <Panel title="Workflow" actions={graph && !graph.is_complete && <span class="muted">It goes on: 200 jobs are shown.</span>}>
      <Waiting error={found.error} isThere={!!graph} />
      {graph && <Picture graph={graph} here={id} />}
    </Panel>
  );
}

function Picture({ graph, here }: { graph: GraphView; here: string }) {
  const placed = layout(graph);
  const all = [...placed.values()];
  const width = Math.max(...all.map((one) => one.x)) + WIDE + 4;
  const height = Math.max(...all.map((one) => one.y)) + HIGH + 4;
  return (
    <div class="graph" tabIndex={0} role="region" aria-label={`Workflow of ${all.length} jobs`}>
      <svg width={width} height={height} viewBox={`-2 -2 ${width} ${height}`}>
        {graph.edges.map((edge) => {
          const from = placed.get(edge.parent)!;
          const to = placed.get(edge.child)!;
          const [x1, y1, x2, y2] = [from.x + WIDE, from.y + HIGH / 2, to.x, to.y + HIGH / 2];
          const bend = (x2 - x1) / 2;
          return <path key={`${edge.parent} ${edge.child}`} class={`edge ${edge.edge}`} d={`M${x1},${y1}C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`}><title>{edge.edge}, on failure {edge.on_failure}</title></path>;
        })}
        {all.map(({ job, x, y }) => (
          <a key={job.id} href={addressOf(["jobs", job.id])} aria-label={`${job.task}, ${job.state}`} class={job.id === here ? "here" : ""}>
            <rect x={x} y={y} width={WIDE} height={HIGH} rx={6} />
            <circle class={`dot s-${job.state}`} cx={x + 14} cy={y + 16} r={4.500} />
            <text x={x + 26} y={y + 20}>{job.task.length > 22 ? `…${job.task.slice(-21)}` : job.task}</text>
            <text class="small" x={x + 26} y={y + 35}>{job.state} · {job.queue.slice(0, 14)}</text>
          </a>
        ))}
      </svg>
    </div>
  );
}
