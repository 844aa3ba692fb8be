/** Charts over time: hover says the values, dragging selects a range, a double click shows all again. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { settings } from "./settings";

export interface Line {
  label: string;
  /** The name of a colour of the design, such as `--s-running`. */
  color: string;
  values: (number | null)[];
  isFilled?: boolean;
}

const HEIGHT = 190;

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** A colour of the design that lets through what is behind it. */
function faint(color: string): string {
  return /^#[0-9a-f]{6}$/i.test(color) ? `${color}22` : "transparent";
}

function axis(): uPlot.Axis {
  return {
    stroke: colour("--muted"),
    font: "11px system-ui, sans-serif",
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1, size: 4 },
  };
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const seconds = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** What stands below a tick: the time, and the day where another one begins. */
function clockAt(tick: number, before: number | undefined): string {
  const at = new Date(tick * 1000);
  const isNewDay = before !== undefined && new Date(before * 1000).getDate() !== at.getDate();
  if (isNewDay) return day.format(at);
  return tick % 60 ? seconds.format(at) : clock.format(at);
}

export function Chart({ label, times, lines, unit = (value) => String(value) }: { label: string; times: number[]; lines: Line[]; unit?: (value: number) => string }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const { theme } = settings.value;
  const names = lines.map((line) => line.label).join("|");

  useEffect(() => {
    const place = box.current!;
    const build = () => {
      plot.current?.destroy();
      plot.current = new uPlot(
        {
          width: Math.max(place.clientWidth, 120),
          height: HEIGHT,
          padding: [8, 20, 0, 0],
          cursor: { drag: { x: true, y: false }, points: { size: 6 } },
          legend: { live: true },
          axes: [{ ...axis(), values: (_, ticks) => ticks.map((tick, index) => clockAt(tick, ticks[index - 1])), space: 70, size: 28 }, { ...axis(), size: 54, values: (_, ticks) => ticks.map((tick) => unit(tick)) }],
          scales: { x: { range: (_, least, most) => [least, Math.max(most, least + 60)] }, y: { range: (_, __, most) => [0, Math.max(most, 1) * 1.05] } },
          series: [
            { label: "Time", value: (_, at) => (at === null ? "" : new Date(at * 1000).toLocaleTimeString("en-GB")) },
            ...lines.map((line) => ({
              label: line.label,
              stroke: colour(line.color),
              fill: line.isFilled ? faint(colour(line.color)) : undefined,
              width: 1.5,
              points: { show: false },
              value: (_: uPlot, value: number | null) => (value === null ? "" : unit(value)),
            })),
          ],
        },
        [times, ...lines.map((line) => line.values)] as uPlot.AlignedData,
        place,
      );
    };
    build();
    const sizes = new ResizeObserver(() => plot.current?.setSize({ width: Math.max(place.clientWidth, 120), height: HEIGHT }));
    sizes.observe(place);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", build);
    return () => {
      sizes.disconnect();
      scheme.removeEventListener("change", build);
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [theme, names]);

  useEffect(() => {
    const known = plot.current;
    // A selected range stays: new values must not move it.
    if (known) known.setData([times, ...lines.map((line) => line.values)] as uPlot.AlignedData, !isZoomed(known));
  }, [times, lines]);

  return <div class="chart" ref={box} role="img" aria-label={label} />;
}

function isZoomed(plot: uPlot): boolean {
  const [times] = plot.data;
  const { min, max } = plot.scales["x"]!;
  if (!times.length || min === undefined || min === null || max === undefined || max === null) return false;
  return min > times[0]! || max < times[times.length - 1]! - 1;
}

/** A small line without axes, for a row of a table. */
export function Spark({ values, color, label }: { values: number[]; color: string; label: string }) {
  const most = Math.max(...values, 1);
  const step = values.length > 1 ? 100 / (values.length - 1) : 100;
  const points = values.map((value, index) => `${(index * step).toFixed(1)},${(23 - (value / most) * 22).toFixed(1)}`).join(" ");
  return (
    <svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label={label}>
      <polyline points={points} fill="none" style={{ stroke: `var(${color})` }} vector-effect="non-scaling-stroke" />
    </svg>
  );
}
