/** What the server tells while the page is open: one stream for all views, and polling while it is down. */

import { batch, signal } from "@preact/signals";
import { get, session } from "./api";
import { settings } from "./settings";
import type { Happening, LineShape, QueueList, QueueNews, QueueShape, WorkerList, WorkerNews, WorkerShape } from "./types";

export type Link = "connecting" | "live" | "polling" | "lost";

export const link = signal<Link>("connecting");
export const trouble = signal("");
export const queues = signal<QueueShape[] | undefined>(undefined);
export const workers = signal<WorkerShape[] | undefined>(undefined);
export const lines = signal<LineShape[]>([]);
/** Counts up with each change; views that show jobs ask again when it does. */
export const changes = signal(0);
/** The time of day, for everything that says how long ago. */
export const now = signal(Date.now());

const MOST_LINES = 200;
const LONGEST_WAIT = 15_000;

export interface Sample {
  at: number;
  pending: number;
  running: number;
  completed: number;
  dead: number;
  failing: number;
}

/** What was counted while the page was open, about once a second, for charts of the last minutes. */
export const samples = signal<Sample[]>([]);
const MOST_SAMPLES = 900;

export function sampled(found: QueueShape[], at: number): Sample {
  const sum = (pick: (queue: QueueShape) => number) => found.reduce((total, queue) => total + pick(queue), 0);
  return {
    at,
    pending: sum((one) => one.counts.pending),
    running: sum((one) => one.counts.running),
    completed: sum((one) => one.counts.completed),
    dead: sum((one) => one.counts.dead),
    failing: sum((one) => one.counts.retrying),
  };
}

/** The queues after news of them, by name. */
export function merged(known: QueueShape[], news: QueueNews): QueueShape[] {
  const byName = new Map((news.is_all ? [] : known).map((queue) => [queue.name, queue]));
  for (const name of news.gone) byName.delete(name);
  for (const queue of news.queues) byName.set(queue.name, queue);
  return [...byName.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

function take(found: QueueShape[]): void {
  batch(() => {
    queues.value = found;
    changes.value += 1;
  });
}

let source: EventSource | null = null;
let again: ReturnType<typeof setTimeout> | undefined;
let wait = 1_000;
let last = "0";

function connect(): void {
  source?.close();
  const stream = new EventSource(`/v1/events/stream?after=${last}`);
  source = stream;
  const on = <T>(kind: string, hear: (news: T) => void) =>
    stream.addEventListener(kind, (event) => {
      if (event.lastEventId) last = event.lastEventId;
      hear(JSON.parse((event as MessageEvent<string>).data) as T);
    });
  stream.onopen = () => {
    wait = 1_000;
  };
  on<QueueNews>("queues", (news) => {
    link.value = "live";
    trouble.value = "";
    take(merged(queues.value ?? [], news));
  });
  on<WorkerNews>("workers", (news) => {
    workers.value = news.workers;
  });
  on<Happening>("log", (news) => {
    const known = new Set(lines.value.map((line) => line.number));
    const fresh = news.lines.filter((line) => !known.has(line.number)).reverse();
    batch(() => {
      lines.value = [...fresh, ...lines.value].slice(0, MOST_LINES);
      changes.value += 1;
    });
  });
  on<unknown>("missed", () => {
    changes.value += 1;
  });
  on<{ code: string; detail?: string }>("problem", (problem) => {
    if (problem.code === "unauthenticated") session.value = null;
    trouble.value = problem.detail ?? problem.code;
  });
  stream.onerror = () => {
    if (link.value === "live" || link.value === "connecting") link.value = "polling";
    // The browser comes again by itself only after some errors, so we always do.
    stream.close();
    clearTimeout(again);
    again = setTimeout(connect, wait);
    wait = Math.min(wait * 2, LONGEST_WAIT);
  };
}

async function poll(): Promise<void> {
  if (link.value === "live" || link.value === "connecting" || !session.value) return;
  try {
    const [found, known] = await Promise.all([get<QueueList>("/v1/queues"), get<WorkerList>("/v1/workers?active_only=false")]);
    take(found.queues);
    workers.value = known.workers;
    link.value = "polling";
  } catch {
    link.value = "lost";
  }
}

let isStarted = false;

export function start(): void {
  if (isStarted) return;
  isStarted = true;
  connect();
  setInterval(() => {
    now.value = Date.now();
    if (!queues.value) return;
    samples.value = [...samples.value, sampled(queues.value, now.value)].slice(-MOST_SAMPLES);
  }, 1_000);
  const polling = () => {
    void poll().finally(() => setTimeout(polling, settings.value.refresh * 1_000));
  };
  polling();
}

export function stop(): void {
  source?.close();
  clearTimeout(again);
  isStarted = false;
}
