/** One queue: how its jobs are spread, how fast they go, what fails, and what to do about it. */

import { useSignal } from "@preact/signals";
import { ask, enc, get, may, post } from "../api";
import { busyNote, length, number, plural } from "../format";
import { queues } from "../live";
import { useLoad } from "../load";
import { addressOf } from "../router";
import { settings } from "../settings";
import { act, Badge, Button, Dialog, Empty, Properties, Field, JobLink, Page, Panel, STATES, StateBar, confirm, Table, tried, Waiting, When } from "../ui";
import type { BulkResponse, JobList, PeekResponse, QueueMetrics, QueueView } from "../types";
import { SeriesChart } from "./series";

type QueueAction = "pause" | "resume" | "drain";
const DONE: Record<QueueAction, string> = { pause: "gives out no more jobs", resume: "is active", drain: "takes no new jobs" };

export function control(queue: QueueView, action: QueueAction): Promise<boolean> {
  const path = `/v1/queues/${enc(queue.name)}`;
  const back: QueueAction = queue.state === "active" ? "resume" : queue.state === "paused" ? "pause" : "drain";
  return act(() => post(`${path}/${action}`), `Queue ${queue.name} ${DONE[action]}.`, () => post(`${path}/${back}`));
}

export function QueueButtons({ queue }: { queue: QueueView }) {
  if (!may("pause_queue", queue.name)) return null;
  return (
    <div class="actions">
      {queue.state === "active" ? (
        <Button aria-label={`Pause ${queue.name}`} onClick={() => void control(queue, "pause")}>Pause</Button>
      ) : (
        <Button aria-label={`Resume ${queue.name}`} onClick={() => void control(queue, "resume")}>Resume</Button>
      )}
    </div>
  );
}

/** The tasks that fail most among these jobs, with the newest reason. */
export function worst(jobs: JobList["jobs"]): { task: string; count: number; reason: string }[] {
  const found = new Map<string, { task: string; count: number; reason: string }>();
  for (const job of jobs) {
    const known = found.get(job.task) ?? { task: job.task, count: 0, reason: job.reason ?? "" };
    found.set(job.task, { ...known, count: known.count + 1 });
  }
  return [...found.values()].sort((a, b) => b.count - a.count);
}

const NO_METRICS = <Empty>Your key shows no metrics of this queue.</Empty>;

function LastMinutes({ name }: { name: string }) {
  const found = useLoad<QueueMetrics | null>(async () => (may("queue_metrics", name) ? get<QueueMetrics>(`/v1/metrics/queues/${enc(name)}?window_seconds=300`) : null), [name]);
  if (found.data === null) return null;
  return (
    <Panel title="By task, in the last five minutes">
      <Waiting error={found.error} isThere={!!found.data} />
      {!!found.data?.rate_limited_requests && <p class="muted">This server has refused {plural(found.data.rate_limited_requests, "request")} since its start, because jobs came too fast.</p>}
      {found.data && (found.data.tasks.length ? (
        <Table label="By task" head={["Task", ">Completed", ">Failed", ">Run p50", ">p95", ">p99", ">Wait p95"]}>
          {found.data.tasks.map((one) => (
            <tr key={one.task}>
              <td class="clip"><a href={addressOf(["jobs"], { queue: name, task: one.task })}>{one.task}</a></td>
              <td class="right">{number(one.completed)}</td>
              <td class={`right ${one.failed ? "wrong" : ""}`}>{number(one.failed)}</td>
              <td class="right">{ms(one.run.p50_ms)}</td><td class="right">{ms(one.run.p95_ms)}</td><td class="right">{ms(one.run.p99_ms)}</td><td class="right">{ms(one.wait.p95_ms)}</td>
            </tr>
          ))}
        </Table>
      ) : <Empty>No runs in this window.</Empty>)}
    </Panel>
  );
}

function ms(value: number | null): string {
  return value === null ? "–" : length(value / 1000);
}

export function QueueView({ id: name }: { id: string }) {
  const queue = queues.value?.find((one) => one.name === name);
  const isEditing = useSignal(false);
  const { spread } = settings.value;
  const next = useLoad<PeekResponse>(() => get(`/v1/queues/${enc(name)}/peek?limit=10`), [name]);
  const dead = useLoad<JobList>(() => post("/v1/dead-letters/search", { where: { queues: [name] }, limit: 100 }), [name]);
  if (!queue) return <Page title={name}><Empty>{queues.value ? "There is no such queue, or you may not see it." : "Waiting for the server…"}</Empty></Page>;
  const purge = async () => {
    const path = `/v1/queues/${enc(name)}/purge`;
    const found = await tried(() => post<BulkResponse>(path, { dry_run: true }));
    if (found && await confirm(`Delete waiting jobs of ${name}?`, `${plural(found.matched, "job")} that wait will be deleted for good. Running ones stay.`, "Delete them")) {
      await act(() => post<BulkResponse>(path), (answer: BulkResponse) => `${plural(answer.affected, "job")} deleted.${busyNote(answer.busy)}`);
    }
  };
  const drop = async () => {
    const live = queue.counts.live;
    if (await confirm(`Delete queue ${name}?`, live ? `${plural(live, "job")} have not ended: those that wait become dead letters.` : "It has no jobs that wait or run.", "Delete queue")) {
      await act(() => ask("DELETE", `/v1/queues/${enc(name)}?force=${live > 0}`), `Queue ${name} is closed.`);
    }
  };
  return (
    <Page
      title={<>{name} <Badge state={queue.state} /></>}
      sub={queue.counts.pending ? `Estimated drain time: ${length(queue.drain_seconds)}` : "No pending jobs"}
      actions={
        <>
          {may("configure_queue", name) && <Button onClick={() => (isEditing.value = true)}>Settings</Button>}
          {may("drain_queue", name) && queue.state === "active" && <Button onClick={() => void control(queue, "drain")}>Drain</Button>}
          <QueueButtons queue={queue} />
          {may("purge_queue", name) && <Button kind="danger" onClick={() => void purge()}>Delete waiting jobs</Button>}
          {may("delete_queue", name) && <Button kind="danger" onClick={() => void drop()}>Delete queue</Button>}
        </>
      }
    >
      <Panel title="Jobs by state">
        <StateBar counts={queue.counts} />
        <div class="legend">
          {STATES.map((state) => (
            <span key={state} class={`s-${state}`}>
              <i /><a href={addressOf(["jobs"], { queue: name, state })}>{state} <b>{number(queue.counts[state])}</b></a>
            </span>
          ))}
        </div>
      </Panel>
      <div class="cols">
        <SeriesChart title="Throughput" queue={name} metrics={["completed", "failed", "enqueued"]} fallback={NO_METRICS} />
        <SeriesChart title="Backlog" queue={name} metrics={["pending", "running", "retrying"]} fallback={NO_METRICS} />
        <SeriesChart title="Waiting and running" queue={name} metrics={[`wait_${spread}_ms`, `run_${spread}_ms`]} unit={(ms) => length(ms / 1000)} fallback={NO_METRICS} />
        <LastMinutes name={name} />
      </div>
      <div class="cols">
        <Panel title="Next jobs">
          <Waiting error={next.error} isThere={!!next.data} />
          {next.data && (next.data.jobs.length ? (
            <Table label="Next jobs" head={["Job", "Task", ">Priority", "Waits since"]}>
              {next.data.jobs.map((job) => (
                <tr key={job.id}><td><JobLink id={job.id} /></td><td class="clip">{job.task}</td><td class="right">{job.priority}</td><td><When at={job.run_at} /></td></tr>
              ))}
            </Table>
          ) : <Empty>No pending jobs.</Empty>)}
        </Panel>
        <Panel title="Top errors" actions={<a href={addressOf(["dead"], { queue: name })}>Dead letters</a>}>
          <Waiting error={dead.error} isThere={!!dead.data} />
          {dead.data?.has_more && <p class="muted">Among the newest {number(dead.data.jobs.length)} of {number(queue.counts.dead)} dead letters:</p>}
          {dead.data && (dead.data.jobs.length ? (
            <Table label="Top errors" head={["Task", ">Dead letters", "Newest reason"]}>
              {worst(dead.data.jobs).slice(0, 8).map((one) => (
                <tr key={one.task}><td class="clip"><a href={addressOf(["dead"], { queue: name, task: one.task })}>{one.task}</a></td><td class="right">{number(one.count)}</td><td class="clip" title={one.reason}>{one.reason}</td></tr>
              ))}
            </Table>
          ) : <Empty>No dead letters.</Empty>)}
        </Panel>
      </div>
      <Panel title="Settings">
        <Properties rows={Object.entries(queue.settings).map(([setting, value]) => [setting.replaceAll("_", " "), value === null ? "none" : typeof value === "object" ? JSON.stringify(value) : setting.endsWith("_seconds") ? length(value as number) : String(value)])} />
      </Panel>
      {isEditing.value && <Settings queue={queue} close={() => (isEditing.value = false)} />}
    </Page>
  );
}

const NUMBERS: [string, string, string][] = [
  ["weight", "Weight", "Turns beside other queues, 1 to 1,000."],
  ["lease_seconds", "Lease (s)", "How long a worker has before it must renew."],
  ["max_length", "Most pending", "Empty takes the limit away."],
  ["default_priority", "Priority", "Of jobs that name none, -100 to 100."],
  ["keep_finished_seconds", "Keep finished (s)", ""],
  ["keep_dead_seconds", "Keep dead letters (s)", ""],
];

function Settings({ queue, close }: { queue: QueueView; close: () => void }) {
  const values = useSignal<Record<string, string>>(Object.fromEntries(NUMBERS.map(([name]) => [name, String(queue.settings[name] ?? "")])));
  const save = async (event: Event) => {
    event.preventDefault();
    const changed: Record<string, number | null> = {};
    for (const [name] of NUMBERS) {
      const text = values.value[name] ?? "";
      if (text !== String(queue.settings[name] ?? "")) changed[name] = text === "" ? null : Number(text);
    }
    const before = Object.fromEntries(Object.keys(changed).map((name) => [name, queue.settings[name] ?? null]));
    const path = `/v1/queues/${enc(queue.name)}`;
    if (await act(() => ask("PATCH", path, changed), "Saved; workers follow at once.", () => ask("PATCH", path, before))) close();
  };
  return (
    <Dialog title={`Settings of ${queue.name}`} close={close}>
      <form onSubmit={save}>
        <div class="form">
          {NUMBERS.map(([name, label, hint]) => (
            <Field key={name} label={label} hint={hint}>
              {(id) => <input id={id} type="number" step="any" value={values.value[name]} onInput={(event) => (values.value = { ...values.value, [name]: event.currentTarget.value })} />}
            </Field>
          ))}
        </div>
        <div class="buttons"><Button onClick={close}>Cancel</Button><Button kind="main" type="submit">Save</Button></div>
      </form>
    </Dialog>
  );
}
