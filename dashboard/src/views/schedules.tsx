/** Jobs by the clock. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ask, enc, get, may, post } from "../api";
import { exact, number, shown } from "../format";
import { queues } from "../live";
import { useLoad } from "../load";
import { act, Badge, Button, Dialog, Empty, Field, JobLink, Page, Panel, confirm, Table, Waiting, When } from "../ui";
import type { EnqueueResponse, ScheduleRunList, PreviewResponse, ScheduleList, ScheduleRequest, ScheduleView } from "../types";
import { isExact, read } from "./enqueue";

const MASK = '"***"';

export function Schedules() {
  const editing = useSignal<ScheduleView | "new" | null>(null);
  const history = useSignal<string | null>(null);
  const found = useLoad<ScheduleList>(() => get("/v1/schedules"), []);
  const path = (one: ScheduleView) => `/v1/schedules/${enc(one.name)}`;
  const action = async (work: () => Promise<unknown>, done: string, undo?: () => Promise<unknown>) => {
    await act(work, done, undo && (() => undo().then(found.reload)));
    found.reload();
  };
  const fire = async (one: ScheduleView) => {
    await act(() => post<EnqueueResponse>(`${path(one)}/fire`), (answer: EnqueueResponse) => (answer.is_duplicate ? "Its job of before has not ended." : `Enqueued ${answer.id}.`));
    found.reload();
  };
  const remove = async (one: ScheduleView) => {
    if (await confirm(`Remove ${one.name}?`, "It goes with its history; jobs that it made stay.", "Remove it")) await action(() => ask("DELETE", path(one)), "Removed.");
  };
  return (
    <Page title="Schedules" sub="What is enqueued by the clock" actions={may("save_schedule") && <Button kind="main" onClick={() => (editing.value = "new")}>New schedule</Button>}>
      <Panel>
        <Waiting error={found.error} isThere={!!found.data} />
        {found.data && (found.data.schedules.length ? (
          <Table label="Schedules" head={["Schedule", "When", "Task", "Queue", "Next", "Last", ">Fired", ">Skipped", ""]}>
            {found.data.schedules.map((one) => (
              <tr key={one.name}>
                <td>{one.name} {one.is_paused && <Badge state="paused" />}{one.is_declared && <span class="muted" title="A program declares it at each start"> declared</span>}</td>
                <td class="mono">{one.when}</td>
                <td class="clip">{one.task}</td>
                <td>{one.queue}</td>
                <td class="tight">{one.is_paused ? "–" : <When at={one.next_run_at} />}</td>
                <td class="tight">{one.last_job_id ? <JobLink id={one.last_job_id}><When at={one.last_run_at} /></JobLink> : <When at={one.last_run_at} />}</td>
                <td class="right">{number(one.enqueued_runs)}</td>
                <td class="right">{number(one.skipped_runs)}</td>
                <td class="tight">
                  <div class="actions">
                    <Button aria-label={`History of ${one.name}`} onClick={() => (history.value = one.name)}>History</Button>
                    {may("fire_schedule") && <Button aria-label={`Run now: ${one.name}`} onClick={() => void fire(one)}>Run now</Button>}
                    {may("pause_schedule") && (one.is_paused
                      ? <Button aria-label={`Resume ${one.name}`} onClick={() => void action(() => post(`${path(one)}/resume`), `${one.name} goes on.`, () => post(`${path(one)}/pause`))}>Resume</Button>
                      : <Button aria-label={`Pause ${one.name}`} onClick={() => void action(() => post(`${path(one)}/pause`), `${one.name} is paused.`, () => post(`${path(one)}/resume`))}>Pause</Button>)}
                    {may("save_schedule") && <Button aria-label={`Edit ${one.name}`} disabled={one.is_declared} title={one.is_declared ? "A program declares it: change it there" : ""} onClick={() => (editing.value = one)}>Edit</Button>}
                    {may("remove_schedule") && <Button kind="danger" aria-label={`Remove ${one.name}`} onClick={() => void remove(one)}>Remove</Button>}
                  </div>
                </td>
              </tr>
            ))}
          </Table>
        ) : <Empty>There are no schedules.</Empty>)}
      </Panel>
      {editing.value && <Editor schedule={editing.value === "new" ? undefined : editing.value} close={() => { editing.value = null; found.reload(); }} />}
      {history.value && <History name={history.value} close={() => (history.value = null)} />}
    </Page>
  );
}

function History({ name, close }: { name: string; close: () => void }) {
  const found = useLoad<ScheduleRunList>(() => get(`/v1/schedules/${enc(name)}/history?limit=50`), [name]);
  return (
    <Dialog title={`Runs of ${name}`} wide close={close}>
      <Waiting error={found.error} isThere={!!found.data} />
      {found.data && (found.data.runs.length ? (
        <Table label="Runs" head={["Run", "Status", "Job", ""]}>
          {found.data.runs.map((one) => (
            <tr key={`${one.planned_at} ${one.status}`}><td>{exact(one.planned_at)}</td><td>{one.status}{one.runs > 1 ? ` × ${one.runs}` : ""}</td><td>{one.job_id && <JobLink id={one.job_id} />}</td><td class="clip">{one.reason}</td></tr>
          ))}
        </Table>
      ) : <Empty>No runs yet.</Empty>)}
      <div class="buttons"><Button onClick={close}>Close</Button></div>
    </Dialog>
  );
}

type Kind = "cron" | "every" | "at";

interface Draft {
  name: string;
  task: string;
  queue: string;
  kind: Kind;
  cron: string;
  every: string;
  at: string;
  timezone: string;
  overlap: ScheduleView["overlap"];
  catchUp: ScheduleView["catch_up"];
  args: string;
  kwargs: string;
}

export function draftOf(schedule: ScheduleView | undefined): Draft {
  return {
    name: schedule?.name ?? "",
    task: schedule?.task ?? "",
    queue: schedule?.queue ?? queues.value?.[0]?.name ?? "default",
    kind: schedule?.every_seconds ? "every" : schedule?.at ? "at" : "cron",
    cron: schedule?.cron ?? "0 * * * *",
    every: String(schedule?.every_seconds ?? 3600),
    at: schedule?.at ?? new Date(Date.now() + 3_600_000).toISOString(),
    timezone: schedule?.timezone ?? "UTC",
    overlap: schedule?.overlap ?? "allow",
    catchUp: schedule?.catch_up ?? "all",
    args: shown(schedule?.args ?? []),
    kwargs: shown(schedule?.kwargs ?? {}),
  };
}

/** Whether the user changed the arguments. Unchanged ones are not sent: they may be masked or rounded. */
export function isCallChanged(draft: Draft, before?: ScheduleView): boolean {
  return !before || draft.args !== shown(before.args ?? []) || draft.kwargs !== shown(before.kwargs ?? {});
}

/** A draft as it is saved; what the form does not show stays as it was. */
export function requestOf(draft: Draft, before?: ScheduleView, hasOwnCall = isCallChanged(draft, before)): ScheduleRequest {
  const kept = before
    ? {
        priority: before.priority, metadata: before.metadata, start_at: before.start_at, end_at: before.end_at, jitter_seconds: before.jitter_seconds,
        catch_up_limit: before.catch_up_limit, catch_up_seconds: before.catch_up_seconds, max_runs: before.max_runs,
      }
    : {};
  return {
    ...kept,
    task: draft.task,
    queue: draft.queue,
    ...(hasOwnCall ? { args: read(draft.args, "list").value as unknown[], kwargs: read(draft.kwargs, "object").value as Record<string, unknown> } : {}),
    timezone: draft.timezone,
    overlap: draft.overlap,
    catch_up: draft.catchUp,
    ...(draft.kind === "cron" ? { cron: draft.cron } : draft.kind === "every" ? { every_seconds: Number(draft.every) } : { at: draft.at }),
  };
}

function Editor({ schedule, close }: { schedule: ScheduleView | undefined; close: () => void }) {
  const draft = useSignal<Draft>(draftOf(schedule));
  const preview = useSignal<PreviewResponse | null>(null);
  const wrong = useSignal("");
  const one = draft.value;
  const set = (some: Partial<Draft>) => (draft.value = { ...draft.value, ...some });
  const isChanged = isCallChanged(one, schedule);
  const badArgs = isChanged ? read(one.args, "list").wrong : undefined;
  const badKwargs = isChanged ? read(one.kwargs, "object").wrong : undefined;
  const hasSecrets = `${one.args}${one.kwargs}`.includes(MASK);
  useEffect(() => {
    if (badArgs || badKwargs || (isChanged && hasSecrets)) return;
    const timer = setTimeout(() => {
      const body = requestOf({ ...one, task: one.task || "task" }, schedule);
      post<PreviewResponse>(`/v1/schedules/${enc(one.name || "new")}/preview?runs=5`, body).then(
        (answer) => { preview.value = answer; wrong.value = ""; },
        (error: Error) => { preview.value = null; wrong.value = error.message; },
      );
    }, 250);
    return () => clearTimeout(timer);
  }, [one]);
  const save = async (event: Event) => {
    event.preventDefault();
    const path = `/v1/schedules/${enc(one.name)}`;
    const before = schedule && draftOf(schedule);
    // Arguments that this page has only seen masked or rounded cannot be put back from here.
    const canUndo = !before || !isChanged || (isExact([schedule.args, schedule.kwargs]) && !`${before.args}${before.kwargs}`.includes(MASK));
    const undo = before ? () => ask("PUT", path, requestOf(before, schedule, isChanged)) : () => ask("DELETE", path);
    if (await act(() => ask("PUT", path, requestOf(one, schedule)), `Schedule ${one.name} is saved.`, canUndo ? undo : undefined)) close();
  };
  return (
    <Dialog title={schedule ? `Schedule ${schedule.name}` : "New schedule"} wide close={close}>
      <form onSubmit={save}>
        <div class="form">
          <Field label="Name">{(id) => <input id={id} required disabled={!!schedule} value={one.name} onInput={(event) => set({ name: event.currentTarget.value })} />}</Field>
          <Field label="Task">{(id) => <input id={id} required value={one.task} onInput={(event) => set({ task: event.currentTarget.value })} />}</Field>
          <Field label="Queue">{(id) => <input id={id} required pattern="[A-Za-z0-9_.\-]{1,50}" value={one.queue} onInput={(event) => set({ queue: event.currentTarget.value })} />}</Field>
          <Field label="When">
            {(id) => <select id={id} value={one.kind} onChange={(event) => set({ kind: event.currentTarget.value as Kind })}><option value="cron">Cron line</option><option value="every">Interval</option><option value="at">Once</option></select>}
          </Field>
          {one.kind === "cron" && <Field label="Cron line" hint="minute hour day month weekday">{(id) => <input id={id} class="mono" required value={one.cron} onInput={(event) => set({ cron: event.currentTarget.value })} />}</Field>}
          {one.kind === "every" && <Field label="Seconds between runs">{(id) => <input id={id} type="number" min={1} step="any" required value={one.every} onInput={(event) => set({ every: event.currentTarget.value })} />}</Field>}
          {one.kind === "at" && <Field label="At" hint="ISO 8601 with a time zone">{(id) => <input id={id} required value={one.at} onInput={(event) => set({ at: event.currentTarget.value })} />}</Field>}
          <Field label="Time zone">{(id) => <input id={id} required value={one.timezone} onInput={(event) => set({ timezone: event.currentTarget.value })} />}</Field>
          <Field label="If the previous run is still active">{(id) => <select id={id} value={one.overlap} onChange={(event) => set({ overlap: event.currentTarget.value as Draft["overlap"] })}><option value="allow">run beside it</option><option value="skip">skip</option><option value="queue">one waits</option></select>}</Field>
          <Field label="Missed runs">{(id) => <select id={id} value={one.catchUp} onChange={(event) => set({ catchUp: event.currentTarget.value as Draft["catchUp"] })}><option value="all">catch up</option><option value="latest">only the last</option><option value="none">forget</option></select>}</Field>
          {schedule?.payload_error ? <p class="notice warn all">Its arguments cannot be shown here and stay as they are: {schedule.payload_error}</p> : <>
          <div class="all"><Field label="Arguments" hint="A JSON list" error={badArgs}>{(id) => <textarea id={id} value={one.args} onInput={(event) => set({ args: event.currentTarget.value })} />}</Field></div>
          <div class="all"><Field label="Named arguments" hint="A JSON object" error={badKwargs}>{(id) => <textarea id={id} value={one.kwargs} onInput={(event) => set({ kwargs: event.currentTarget.value })} />}</Field></div>
          </>}
        </div>
        {hasSecrets && <p class="notice warn">Secrets are not shown. Left as they are, all arguments stay; if you change one, write the secrets, too.</p>}
        <h3>Next runs</h3>
        <div aria-live="polite">
          {wrong.value && <p class="wrong">{wrong.value}</p>}
          {preview.value && (preview.value.runs.length ? <ul class="preview">{preview.value.runs.map((at) => <li key={at}>{exact(at)} <span class="muted"><When at={at} /></span></li>)}</ul> : <p class="muted">never again</p>)}
        </div>
        <div class="buttons"><Button onClick={close}>Cancel</Button><Button kind="main" type="submit" disabled={!!(wrong.value || badArgs || badKwargs || (isChanged && hasSecrets))}>Save</Button></div>
      </form>
    </Dialog>
  );
}
