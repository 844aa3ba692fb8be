/** How everything is, at a glance. */

import { useEffect } from "preact/hooks";
import { enc, get, may } from "../api";
import { number, plural, rate, short } from "../format";
import { isUnserved, queues, samples, workers, type Sample } from "../live";
import { useLoad } from "../load";
import { addressOf } from "../router";
import { Badge, Empty, Page, Panel, QueueLink, StateBar, Table } from "../ui";
import type { SeriesResponse } from "../types";
import { RecentEvents } from "./recent_events";
import { LiveChart, SeriesChart } from "./series";
import { WorkerCells } from "./workers";

/** Jobs a second over the last seconds that were seen, or 0 without enough of them. */
export function perSecond(seen: Sample[], pick: (sample: Sample) => number, seconds = 10): number {
  const last = seen[seen.length - 1];
  const first = seen.find((one) => last && one.at >= last.at - seconds * 1_000);
  if (!first || !last || last.at <= first.at) return 0;
  return Math.max(0, ((pick(last) - pick(first)) * 1_000) / (last.at - first.at));
}

const SEEN_SECONDS = 60;
const EVERY_MS = 10_000; // workers keep what they have seen every ten seconds

/** Jobs a second in the last spans that are over, or nothing where no metrics are stored. */
export function lately(answer: SeriesResponse | null | undefined, name: string): number | undefined {
  const values = answer?.series.find((one) => one.name === name)?.values.slice(0, -1) ?? []; // the last span still fills
  const spans = values.slice(-Math.ceil(SEEN_SECONDS / (answer?.resolution_seconds ?? 1)));
  if (!answer || !spans.length) return undefined;
  return spans.reduce<number>((sum, one) => sum + (one ?? 0), 0) / (spans.length * answer.resolution_seconds);
}

/** What workers have counted lately: jobs that are deleted when they complete change no count of the queues. */
function useRecentRates(): SeriesResponse | null | undefined {
  const { data, reload } = useLoad<SeriesResponse | null>(
    async () => (may("metric_series") ? get<SeriesResponse>(`/v1/metrics/series?metrics=completed,dead&start=${enc(new Date(Date.now() - 2 * SEEN_SECONDS * 1_000).toISOString())}`) : null),
    [],
    false,
  );
  useEffect(() => {
    const timer = setInterval(reload, EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  return data;
}

export function Overview() {
  const counted = useRecentRates();
  const found = queues.value;
  if (!found) return <Page title="Overview"><Empty>Waiting for the server…</Empty></Page>;
  const sum = (state: "pending" | "running" | "retrying" | "scheduled" | "dead") => found.reduce((total, queue) => total + queue.counts[state], 0);
  const alive = (workers.value ?? []).filter((worker) => worker.heartbeat_status === "alive").length;
  const paused = found.filter((queue) => queue.state !== "active");
  return (
    <Page title="Overview" sub={`${plural(found.length, "queue")}, ${plural(alive, "worker")} alive`}>
      <div class="tiles">
        <Tile label="Pending" value={short(sum("pending"))} href={addressOf(["jobs"], { state: "pending" })} />
        <Tile label="Running" value={short(sum("running"))} href={addressOf(["jobs"], { state: "running" })} />
        <Tile label="Retrying" value={short(sum("retrying"))} href={addressOf(["jobs"], { state: "retrying" })} />
        <Tile label="Scheduled" value={short(sum("scheduled"))} href={addressOf(["jobs"], { state: "scheduled" })} />
        <Tile label="Dead letters" value={short(sum("dead"))} href={addressOf(["dead"])} isBad={sum("dead") > 0} />
        <Tile label="Completed / s" value={rate(lately(counted, "completed") ?? perSecond(samples.value, (one) => one.completed))} />
        <Tile label="Dead / s" value={rate(lately(counted, "dead") ?? perSecond(samples.value, (one) => one.dead))} />
        <Tile label="Workers" value={short(alive)} href={addressOf(["workers"])} isBad={alive === 0 && sum("pending") > 0} />
      </div>
      {paused.length > 0 && (
        <p class="notice warn">
          Not active: {paused.map((queue) => <span key={queue.name}><QueueLink name={queue.name} /> <Badge state={queue.state} /> </span>)}
        </p>
      )}
      <div class="cols">
        <SeriesChart title="Throughput" metrics={["completed", "failed"]} fallback={<LiveChart kind="rate" />} />
        <SeriesChart title="Backlog" metrics={["pending", "running", "retrying"]} fallback={<LiveChart kind="backlog" />} />
      </div>
      <div class="cols wide-left">
        <Panel title="Queues">
          {found.length ? (
            <Table label="Queues" head={["Queue", "State", "Jobs that wait or run", ">Pending", ">Running", ">Dead"]}>
              {found.map((queue) => (
                <tr key={queue.name}>
                  <td><QueueLink name={queue.name} /></td>
                  <td>
                    <Badge state={queue.state} />
                    {isUnserved(queue, workers.value) && <Badge state="dead">no worker</Badge>}
                  </td>
                  <td><StateBar counts={queue.counts} states={["pending", "running", "retrying", "scheduled", "blocked"]} /></td>
                  <td class="right">{number(queue.counts.pending)}</td>
                  <td class="right">{number(queue.counts.running)}</td>
                  <td class={`right ${queue.counts.dead ? "wrong" : ""}`}>{number(queue.counts.dead)}</td>
                </tr>
              ))}
            </Table>
          ) : (
            <Empty>There are no queues yet: the first job makes one.</Empty>
          )}
        </Panel>
        <div class="stack">
          <Panel title="Workers">
            <WorkerCells workers={workers.value ?? []} />
          </Panel>
          <Panel title="Recent activity">
            <RecentEvents most={30} />
          </Panel>
        </div>
      </div>
    </Page>
  );
}

function Tile({ label, value, href, isBad = false }: { label: string; value: string; href?: string; isBad?: boolean }) {
  const inside = (
    <>
      <span>{label}</span>
      <b class={isBad ? "bad" : ""}>{value}</b>
    </>
  );
  return href ? <a class="tile" href={href}>{inside}</a> : <div class="tile">{inside}</div>;
}
