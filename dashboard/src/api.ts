/** The service's API. Everything the page knows and does goes through `ask`. */

import { signal } from "@preact/signals";
import { BASE } from "./router";
import type { LoginOptions, Problem, Role, SessionView } from "./types";

/** Who is here: `undefined` until the server has said, `null` where it asks for a key. */
export const session = signal<SessionView | null | undefined>(undefined);

/** A request so long after the last input is one of the page itself, and keeps no session alive. */
const PRESENT_MS = 60_000;
const ASK_MS = 30_000;
let touchedAt = Date.now();
let askedAt = Date.now();

for (const kind of ["pointerdown", "pointermove", "keydown", "wheel"]) {
  addEventListener(kind, () => (touchedAt = Date.now()), { capture: true, passive: true });
}

const isPresent = () => Date.now() - touchedAt < PRESENT_MS;

/** Let the server know of a user who reads: a view may need no request for a long time. */
export function stayLoggedIn(): ReturnType<typeof setInterval> {
  return setInterval(() => {
    if (session.value?.has_key && isPresent() && Date.now() - askedAt >= ASK_MS) findSession().catch(() => undefined);
  }, ASK_MS);
}

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

export async function ask<T>(method: string, path: string, body?: unknown, key?: string): Promise<T> {
  const headers: Record<string, string> = {};
  // What another site cannot send; the server takes nothing with our cookie without it.
  if (method !== "GET") headers["X-Forebay-Page"] = "1";
  if (isPresent()) askedAt = Date.now();
  else headers["X-Forebay-Background"] = "1";
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Authorization"] = `Bearer ${key}`;
  let answer: Response;
  try {
    answer = await fetch(BASE + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new ApiError(0, "unreachable", "The server cannot be reached.");
  }
  if (answer.ok) return (await answer.json()) as T;
  if (answer.status === 401 && !key) session.value = null;
  const problem = (await answer.json().catch(() => null)) as Problem | null;
  const text = problem?.detail || problem?.title || `The server has answered ${answer.status}.`;
  throw new ApiError(answer.status, problem?.code ?? "", text);
}

export const get = <T>(path: string) => ask<T>("GET", path);
export const post = <T>(path: string, body: unknown = {}) => ask<T>("POST", path, body);

export async function findSession(): Promise<void> {
  try {
    session.value = await get<SessionView>("/v1/session");
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 401)) throw error;
  }
}

export const findProvider = () => get<LoginOptions>("/v1/login");

export async function logIn(key: string): Promise<void> {
  session.value = await ask<SessionView>("POST", "/v1/session", undefined, key);
}

export async function logOut(): Promise<void> {
  await ask("DELETE", "/v1/session");
  session.value = null;
}

/** Whether a name stands for a queue as a grant has it: `mail`, `mail-*` or `*`. */
export function covers(grant: string, queue: string): boolean {
  return grant.endsWith("*") ? queue.startsWith(grant.slice(0, -1)) : grant === queue;
}

const OPERATE = new Set([
  "pause_queue", "resume_queue", "drain_queue", "purge_queue", "requeue", "bulk", "delete_job", "revive", "replay",
  "revive_dead", "purge_dead", "start_gradual_revive", "pause_gradual_revive", "resume_gradual_revive", "stop_gradual_revive", "cancel", "update_job",
]);

const VIEW = new Set(["metric_series", "queue_metrics", "result", "graph"]);

/** Whether an action is worth offering. The server decides; this only hides what it would refuse. */
export function may(operation: string, queue?: string): boolean {
  const who = session.value;
  if (!who) return false;
  if (who.operations.includes(operation)) return true;
  if (queue === undefined) return false;
  return who.grants.some((grant) => covers(grant.queues, queue) && gives(grant.role, operation));
}

function gives(role: Role, operation: string): boolean {
  if (role === "admin") return true;
  if (role === "produce") return ["enqueue", "cancel", "update_job", "result"].includes(operation);
  return (VIEW.has(operation) && role !== "consume") || (OPERATE.has(operation) && role === "operate");
}

export const enc = encodeURIComponent;
