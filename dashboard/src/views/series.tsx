/** Charts of what the service has counted, and of what was seen while the page was open where it counts nothing. */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { enc, get, may } from "../api";
import { Chart, type Line } from "../chart";
import { rate, short } from "../format";
import { samples } from "../live";
import { useLoad } from "../load";
import { prefer, settings, type Settings } from "../settings";
import type { SeriesResponse } from "../types";
import { Panel, Waiting } from "../ui";

const RANGES = { "1h": 3_600, "24h": 86_400, "7d": 604_800 };
const COLORS: Record<string, string> = { completed: "--s-completed", failed: "--s-dead", pending: "--s-pending", running: "--s-running", dead: "--s-dead", enqueued: "--s-scheduled", wait: "--s-scheduled", run: "--s-running", retrying: "--s-retrying" };
const COUNTS = new Set(["enqueued", "claimed", "completed", "failed", "retried", "dead", "cancelled", "snoozed", "lost"]);

/** A server that keeps no metrics does not know this operation. */
const SERIES = "metric_series";
const EVERY_MS = 10_000; // workers keep what they have seen every ten seconds

export function Choices<T extends string>({ label, value, choices, choose }: { label: string; value: T; choices: readonly T[]; choose: (value: T) => void }) {
  return (
    <div class="choices" role="group" aria-label={label}>
      {choices.map((one) => (
        <button type="button" key={one} aria-pressed={one === value} onClick={() => choose(one)}>
          {one}
        </button>
      ))}
    </div>
  );
}

export function SeriesChart({ title, metrics, queue, fallback, unit = rate }: { title: string; metrics: string[]; queue?: string; fallback: ComponentChildren; unit?: (value: number) => string }) {
  const { range } = settings.value;
  const { data, error, reload } = useLoad<SeriesResponse | null>(
    async () => {
      if (!may(SERIES, queue)) return null;
      const start = new Date(Date.now() - RANGES[range] * 1_000).toISOString();
      return get<SeriesResponse>(`/v1/metrics/series?metrics=${metrics.join(",")}&start=${enc(start)}${queue ? `&queue=${enc(queue)}` : ""}`);
    },
    [range, queue, metrics.join()],
    false,
  );
  useEffect(() => {
    const timer = setInterval(reload, EVERY_MS);
    return () => clearInterval(timer);
  }, [range, queue, metrics.join()]);
  const times = useMemo(() => data?.times.map((at) => Date.parse(at) / 1000) ?? [], [data]);
  const lines = useMemo<Line[]>(
    () =>
      data?.series.map((one) => ({
        label: COUNTS.has(one.name) ? `${one.name} / s` : one.name.replace(/_ms$/, "").replaceAll("_", " "),
        color: COLORS[one.name.split("_")[0]!] ?? "--accent",
        isFilled: one.name === metrics[0],
        values: COUNTS.has(one.name) ? one.values.map((value) => (value === null ? null : value / data.resolution_seconds)) : one.values,
      })) ?? [],
    [data],
  );
  if (data === null) return <Panel title={title}>{fallback}</Panel>;
  return (
    <Panel title={title} actions={<Choices label="Range" value={range} choices={["1h", "24h", "7d"] as const} choose={(one: Settings["range"]) => prefer({ range: one })} />}>
      <Waiting error={error} isThere={data !== undefined} />
      {data && <Chart label={`${title}: ${metrics.join(", ")}`} times={times} lines={lines} unit={unit} />}
    </Panel>
  );
}

/** Differences between neighbours as jobs a second; the first has none. */
export function rates(values: number[], at: number[]): (number | null)[] {
  return values.map((value, index) => {
    const seconds = index ? (at[index]! - at[index - 1]!) / 1_000 : 0;
    return seconds > 0 ? Math.max(0, (value - values[index - 1]!) / seconds) : null;
  });
}

export function LiveChart({ kind }: { kind: "rate" | "backlog" }) {
  const seen = samples.value;
  const times = seen.map((one) => one.at / 1000);
  const at = seen.map((one) => one.at);
  const lines: Line[] =
    kind === "rate"
      ? [
          { label: "completed / s", color: "--s-completed", isFilled: true, values: rates(seen.map((one) => one.completed), at) },
          { label: "dead / s", color: "--s-dead", values: rates(seen.map((one) => one.dead), at) },
        ]
      : [
          { label: "pending", color: "--s-pending", isFilled: true, values: seen.map((one) => one.pending) },
          { label: "running", color: "--s-running", values: seen.map((one) => one.running) },
          { label: "retrying", color: "--s-retrying", values: seen.map((one) => one.failing) },
        ];
  return <Chart label={kind === "rate" ? "Jobs finished per second" : "Backlog"} times={times} lines={lines} unit={kind === "rate" ? rate : short} />;
}
