/** One job: properties, timeline and actions. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ask, enc, get, may, post } from "../api";
import { exact, length, moment, number, shown } from "../format";
import { now } from "../live";
import { useLoad } from "../load";
import { addressOf, go } from "../router";
import { act, Badge, Button, Code, Properties, JobLink, Page, Panel, QueueLink, confirm, Waiting, When } from "../ui";
import type { JobView, ResultResponse, ReviveRequest, ActionResponse } from "../types";
import { Enqueue, isExact } from "./enqueue";
import { GraphPanel } from "./graph";

interface Step {
  at: string;
  kind: "good" | "bad" | "warn" | "now" | "";
  what: string;
  detail: string;
}

/** Timeline of a job, oldest first. */
export function timeline(job: JobView): Step[] {
  const steps: Step[] = [{ at: job.created_at, kind: "", what: "enqueued", detail: job.parent_id ? `after ${job.parent_id}` : "" }];
  for (const one of job.attempts) {
    if (one.started_at) steps.push({ at: one.started_at, kind: "now", what: `attempt ${one.attempt} started`, detail: one.worker ? `by ${one.worker}` : "" });
    steps.push({ at: one.ended_at, kind: "bad", what: `attempt ${one.attempt} ${one.outcome}`, detail: `${one.error_type}: ${one.error}` });
  }
  for (const one of job.events) {
    steps.push({ at: one.at, kind: ["refused", "swept", "force_cancelled", "expired"].includes(one.kind) ? "warn" : "", what: one.kind, detail: [one.detail, one.actor && `by ${one.actor}`].filter(Boolean).join(" ") });
  }
  const known = new Set(job.attempts.map((one) => one.attempt));
  if (job.started_at && !known.has(job.attempt)) steps.push({ at: job.started_at, kind: "now", what: `attempt ${job.attempt} started`, detail: job.worker ? `by ${job.worker}` : "" });
  if (job.finished_at) steps.push({ at: job.finished_at, kind: job.state === "completed" ? "good" : "bad", what: job.state, detail: job.state === "completed" ? "" : (job.reason ?? "") });
  return steps.sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
}

export function JobView({ id }: { id: string }) {
  const isReplaying = useSignal(false);
  const found = useLoad<JobView>(() => get(`/v1/jobs/${enc(id)}`), [id]);
  const job = found.data;
  const isRunning = job?.state === "running";
  useEffect(() => {
    // Progress changes no count, so the stream has no event for it.
    if (!isRunning) return;
    const timer = setInterval(found.reload, 1_000);
    return () => clearInterval(timer);
  }, [isRunning, id]);
  if (!job) return <Page title={<span class="mono">{id}</span>}><Waiting error={found.error} isThere={false} /></Page>;
  return (
    <Page
      title={<>{job.task} <Badge state={job.state} /></>}
      sub={<><span class="mono">{job.id}</span> in <QueueLink name={job.queue} /></>}
      actions={<JobActions job={job} reload={found.reload} replay={() => (isReplaying.value = true)} />}
    >
      <Waiting error={found.error} isThere />
      {job.reason && <p class={`notice ${job.state === "dead" ? "bad" : "warn"}`}>{job.reason}</p>}
      {job.progress && (
        <Panel title="Progress">
          <progress aria-label="Progress" max={job.progress.total ?? undefined} value={job.progress.total ? job.progress.done : undefined} />{" "}
          {number(job.progress.done)}{job.progress.total ? ` of ${number(job.progress.total)}` : ""} {job.progress.message}
        </Panel>
      )}
      <div class="cols">
        <div class="stack">
          <Panel title="Details"><Properties rows={facts(job)} /></Panel>
          <Panel title="Arguments">
            {job.payload_error ? <p class="notice warn">{job.payload_error}</p> : <Code label="Arguments" text={shown({ args: job.args ?? [], kwargs: job.kwargs ?? {} })} />}
            {!isExact([job.args, job.kwargs]) && <p class="notice warn">Integers beyond 2^53 are shown rounded here.</p>}
          </Panel>
          {Object.keys(job.metadata).length > 0 && <Panel title="Metadata"><Code label="Metadata" text={shown(job.metadata)} /></Panel>}
          {job.state === "completed" && may("result", job.queue) && <Result id={id} />}
        </div>
        <div class="stack">
          <Panel title="Timeline">
            <ol class="timeline">
              {timeline(job).map((step, index) => (
                <li key={index} class={step.kind}>
                  <time dateTime={step.at} title={exact(step.at)}>{moment(step.at, now.value)}</time><i />
                  <span class="what"><b>{step.what}</b> {step.detail}</span>
                </li>
              ))}
            </ol>
          </Panel>
          {job.attempts.length > 0 && (
            <Panel title={`Failed attempts (${job.attempts.length})`}>
              {[...job.attempts].reverse().map((one, index) => (
                <details key={one.attempt} open={index === 0}>
                  <summary>Attempt {one.attempt}: <b>{one.error_type}</b> {one.error} <span class="muted">{length(one.duration_seconds)}, <When at={one.ended_at} /></span></summary>
                  {one.traceback ? <Code label={`Traceback of attempt ${one.attempt}`} text={one.traceback} /> : <p class="muted">There is no traceback.</p>}
                </details>
              ))}
            </Panel>
          )}
        </div>
      </div>
      {(job.depends_on.length > 0 || job.dependants.length > 0) && <GraphPanel id={id} />}
      {isReplaying.value && <Enqueue like={job} close={() => (isReplaying.value = false)} />}
    </Page>
  );
}

function facts(job: JobView): [string, preact.ComponentChildren][] {
  const rows: [string, preact.ComponentChildren][] = [
    ["Attempt", `${job.attempt}, ${job.failures} failures of ${job.max_retries + 1} allowed${job.crashes ? `, ${job.crashes} crashes` : ""}`],
    ["Priority", job.priority],
    ["Enqueued", <When at={job.created_at} />],
    [job.is_final ? "Scheduled for" : "Due", <When at={job.run_at} />],
  ];
  if (job.started_at) rows.push(["Started", <When at={job.started_at} />]);
  if (job.finished_at) rows.push(["Finished", <When at={job.finished_at} />]);
  if (job.started_at && job.finished_at) rows.push(["Duration", length((Date.parse(job.finished_at) - Date.parse(job.started_at)) / 1000)]);
  if (job.worker) rows.push(["Worker", <span class="mono">{job.worker}</span>]);
  if (job.lease_expires_at && job.state === "running") rows.push(["Lease ends", <When at={job.lease_expires_at} />]);
  rows.push(["Timeout", job.timeout_seconds === null ? "none" : length(job.timeout_seconds)]);
  if (job.deadline_at) rows.push(["Deadline", <When at={job.deadline_at} />]);
  if (job.expires_at) rows.push(["Expires", <When at={job.expires_at} />]);
  if (job.tags.length) rows.push(["Tags", job.tags.map((tag) => <a key={tag} href={addressOf(["jobs"], { tag })}>#{tag} </a>)]);
  if (job.unique_key) rows.push(["Unique key", <span class="mono">{job.unique_key}</span>]);
  if (job.idempotency_key) rows.push(["Idempotency key", <span class="mono">{job.idempotency_key}</span>]);
  if (job.correlation_id) rows.push(["Correlation", <span class="mono">{job.correlation_id}</span>]);
  if (job.parent_id) rows.push(["Created by", <JobLink id={job.parent_id} />]);
  if (job.sequence) rows.push(["Sequence", job.sequence]);
  for (const [name, value] of Object.entries(job.limit_keys)) rows.push([`Limit ${name}`, value]);
  return rows;
}

function Result({ id }: { id: string }) {
  const found = useLoad<ResultResponse>(() => get(`/v1/jobs/${enc(id)}/result`), [id], false);
  return (
    <Panel title="Result">
      <Waiting error={found.error} isThere={!!found.data} />
      {found.data && <Code label="Result" text={shown(found.data.result)} />}
    </Panel>
  );
}

/** How a cancelled job goes back to what it was: due when it was, with its failures, and with those that waited for it. */
export function backOf(job: JobView, at: number): ReviveRequest {
  return { delay_seconds: Math.max(0, (Date.parse(job.run_at) - at) / 1_000), reset: false, dependants: true };
}

function JobActions({ job, reload, replay }: { job: JobView; reload: () => void; replay: () => void }) {
  const path = `/v1/jobs/${enc(job.id)}`;
  const canRevive = job.state === "dead" || job.state === "cancelled";
  const action = async (work: () => Promise<unknown>, done: string, undo?: () => Promise<unknown>) => {
    await act(work, done, undo);
    reload();
  };
  const remove = async () => {
    if (!(await confirm("Delete this job?", "It goes for good, with its history.", "Delete it"))) return;
    if (await act(() => ask<ActionResponse>("DELETE", path), "Deleted.")) go(addressOf(["jobs"]));
  };
  const force = async () => {
    if (await confirm("Force-cancel this running job?", "It counts as cancelled at once. Its worker may still run it, and what it does then is not kept.", "Force cancel")) {
      await action(() => post(`${path}/cancel`, { reason: "force-cancelled in the dashboard", force: true }), "Job force-cancelled.");
    }
  };
  return (
    <>
      {canRevive && may("revive", job.queue) && <Button kind="main" onClick={() => void action(() => post(`${path}/revive`), "Job revived.")}>Revive</Button>}
      {["scheduled", "retrying"].includes(job.state) && may("update_job", job.queue) && <Button onClick={() => void action(() => ask("PATCH", path, { delay_seconds: 0 }), "Job is due now.")}>Run now</Button>}
      {may("replay", job.queue) && <Button onClick={replay}>Edit and replay</Button>}
      {!job.is_final && may("cancel", job.queue) && (
        <Button onClick={() => void action(() => post(`${path}/cancel`, { reason: "cancelled in the dashboard" }), job.state === "running" ? "Asked to stop." : "Cancelled.", job.state === "running" ? undefined : () => post(`${path}/revive`, backOf(job, Date.now())).then(reload))}>Cancel</Button>
      )}
      {job.state === "running" && may("cancel", job.queue) && <Button kind="danger" onClick={() => void force()}>Force cancel</Button>}
      {job.state !== "running" && may("delete_job", job.queue) && <Button kind="danger" onClick={() => void remove()}>Delete</Button>}
    </>
  );
}
