/** Server-sent events while the page is open: one stream for all views, and polling while it is down. */

import { batch, signal } from "@preact/signals";
import { get, may, session } from "./api";
import { BASE } from "./router";
import { settings } from "./settings";
import type { AuditEvents, AuditEventView, QueueList, QueueChanges, QueueView, WorkerList, WorkerChanges, WorkerView } from "./types";

export type Link = "connecting" | "live" | "polling" | "lost";

export const link = signal<Link>("connecting");
export const trouble = signal("");
export const queues = signal<QueueView[] | undefined>(undefined);
export const workers = signal<WorkerView[] | undefined>(undefined);
export const lines = signal<AuditEventView[]>([]);
/** Counts up with each change; views that show jobs ask again when it does. */
export const changes = signal(0);
/** The time of day, for everything that says how long ago. */
export const now = signal(Date.now());

const MOST_LINES = 200;
const LONGEST_WAIT = 15_000;
const LONGEST_SILENCE = 10_000;
const LONGEST_TROUBLE = 5_000;

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

export function sampled(found: QueueView[], at: number): Sample {
  const sum = (pick: (queue: QueueView) => number) => found.reduce((total, queue) => total + pick(queue), 0);
  return {
    at,
    pending: sum((one) => one.counts.pending),
    running: sum((one) => one.counts.running),
    completed: sum((one) => one.counts.completed),
    dead: sum((one) => one.counts.dead),
    failing: sum((one) => one.counts.retrying),
  };
}

/** Whether jobs of a queue could run and no live worker serves it; unknown workers count as there. Consumers are in no
 * list of workers, so a queue with running jobs is served. */
export function isUnserved(queue: QueueView, known: WorkerView[] | undefined): boolean {
  const isOpen = queue.state === "active" || queue.state === "draining";
  if (!known || !isOpen || !queue.counts.pending || queue.counts.running) return false;
  return !known.some((worker) => worker.heartbeat_status !== "dead" && worker.queues.includes(queue.name));
}

/** The queues after update of them, by name. */
export function merged(known: QueueView[], update: QueueChanges): QueueView[] {
  const byName = new Map((update.is_all ? [] : known).map((queue) => [queue.name, queue]));
  for (const name of update.removed) byName.delete(name);
  for (const queue of update.queues) byName.set(queue.name, queue);
  return [...byName.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

function take(found: QueueView[]): void {
  batch(() => {
    queues.value = found;
    changes.value += 1;
  });
}

let source: EventSource | null = null;
let again: ReturnType<typeof setTimeout> | undefined;
let wait = 1_000;
let last = "0";
let troubledAt = 0;

function connect(): void {
  source?.close();
  clearTimeout(again);
  const stream = new EventSource(`${BASE}/v1/events/stream?after=${last}`);
  source = stream;
  // One that neither opens nor fails, behind a proxy that waits for its end, is one that is down.
  again = setTimeout(() => down(stream), LONGEST_SILENCE);
  const on = <T>(kind: string, hear: (update: T) => void) =>
    stream.addEventListener(kind, (event) => {
      if (event.lastEventId) last = event.lastEventId;
      if (kind !== "problem") trouble.value = "";
      hear(JSON.parse((event as MessageEvent<string>).data) as T);
    });
  stream.onopen = () => {
    wait = 1_000;
  };
  on<QueueChanges>("queues", (update) => {
    clearTimeout(again);
    link.value = "live";
    take(merged(queues.value ?? [], update));
  });
  on<WorkerChanges>("workers", (update) => {
    workers.value = update.workers;
  });
  on<AuditEvents>("audit", (update) => {
    const known = new Set(lines.value.map((line) => line.number));
    const fresh = update.lines.filter((line) => !known.has(line.number)).reverse();
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
    troubledAt = Date.now();
  });
  stream.onerror = () => down(stream);
}

function down(stream: EventSource): void {
  if (stream !== source) return;
  if (link.value === "live" || link.value === "connecting") link.value = "polling";
  // The browser comes again by itself only after some errors, so we always do.
  stream.close();
  clearTimeout(again);
  again = setTimeout(connect, wait);
  wait = Math.min(wait * 2, LONGEST_WAIT);
}

const isLive = () => link.value === "live";

async function poll(): Promise<void> {
  if (isLive() || link.value === "connecting" || !session.value) return;
  const who = session.value;
  try {
    const [found, known] = await Promise.all([get<QueueList>("/v1/queues"), may("workers") ? get<WorkerList>("/v1/workers?active_only=false") : null]);
    if (session.value !== who || isLive()) return;
    take(found.queues);
    if (known) workers.value = known.workers;
    link.value = "polling";
    trouble.value = "";
  } catch {
    if (session.value === who && !isLive()) link.value = "lost";
  }
}

let isStarted = false;
let ticking: ReturnType<typeof setInterval> | undefined;
let polling: ReturnType<typeof setTimeout> | undefined;

export function start(): void {
  if (isStarted) return;
  isStarted = true;
  connect();
  ticking = setInterval(() => {
    now.value = Date.now();
    // Errors repeat, and no event says that one is over.
    if (trouble.value && now.value > troubledAt + LONGEST_TROUBLE) trouble.value = "";
    if (!queues.value) return;
    samples.value = [...samples.value, sampled(queues.value, now.value)].slice(-MOST_SAMPLES);
  }, 1_000);
  const mine = ticking;
  const next = () => {
    polling = setTimeout(() => void poll().finally(() => mine === ticking && next()), settings.value.refresh * 1_000);
  };
  next();
}

/** Hear no more, and forget all that was heard: who logs in next may not be allowed to see it. */
export function stop(): void {
  source?.close();
  source = null;
  clearTimeout(again);
  clearTimeout(polling);
  clearInterval(ticking);
  ticking = undefined;
  isStarted = false;
  wait = 1_000;
  last = "0";
  batch(() => {
    link.value = "connecting";
    trouble.value = "";
    queues.value = undefined;
    workers.value = undefined;
    lines.value = [];
    samples.value = [];
  });
}
