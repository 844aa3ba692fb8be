/** Who does the work. */

import { useSignal } from "@preact/signals";
import { get, may, post } from "../api";
import { bytes, length, number, percent } from "../format";
import { now, workers } from "../live";
import { useLoad } from "../load";
import { act, Badge, Button, Code, Dialog, Empty, JobLink, Page, Panel, confirm, Table, Waiting, When } from "../ui";
import type { CommandList, JobListItem, JobList, JobState, LimitList, LimitUsageView, WorkerView } from "../types";

const MOST_RUNNING = 200;
const MOST_FAILURES = 200;
const MOST_SHOWN = 20;
// A worker names no more of its jobs than that, however many it runs.
const MOST_NAMED = 10;

const nameOf = (worker: WorkerView) => `${worker.host} · ${worker.pid}`;

const namesAll = (worker: WorkerView) => worker.running.length < MOST_NAMED || worker.slots <= MOST_NAMED;

/** How many jobs run, as far as these workers name them. */
export function busyOf(...found: WorkerView[]): string {
  return number(found.reduce((sum, one) => sum + one.running.length, 0)) + (found.every(namesAll) ? "" : "+");
}

/** How many of its slots are drawn as busy: all of them where it may run more jobs than it names. */
const drawnBusy = (worker: WorkerView) => (namesAll(worker) ? Math.min(worker.running.length, worker.slots) : worker.slots);

/** How warm its cell is: the share of its slots that are busy. Who is not alive has none. */
export function heatOf(worker: WorkerView): number {
  return worker.heartbeat_status === "alive" && worker.slots ? Math.round((100 * drawnBusy(worker)) / worker.slots) : 0;
}

/** What failed lately, the latest attempt first. */
export function latest(jobs: JobListItem[]): JobListItem[] {
  return jobs.filter((job) => job.worker && job.failures > 0).sort((a, b) => ((a.started_at ?? "") > (b.started_at ?? "") ? -1 : 1));
}

/** What a worker runs for the longest of these, and for how many seconds; a job that has just begun may not be known yet. */
export function longest(worker: WorkerView, running: JobListItem[], at: number): { id: string; seconds: number | null } | undefined {
  const mine = running.filter((job) => job.worker === worker.id && job.started_at).sort((a, b) => (a.started_at! < b.started_at! ? -1 : 1));
  const first = mine[0];
  if (first) return { id: first.id, seconds: Math.max(0, Math.floor((at - Date.parse(first.started_at!)) / 1_000)) };
  return worker.running[0] === undefined ? undefined : { id: worker.running[0], seconds: null };
}

export function WorkerCells({ workers: found }: { workers: WorkerView[] }) {
  if (!found.length) return <Empty>No workers are running.</Empty>;
  return (
    <div class="cells">
      {found.map((worker) => (
        <div class={`cell ${worker.heartbeat_status}`} key={worker.id} style={{ "--heat": `${heatOf(worker)}%` }}>
          <b title={worker.id}>{nameOf(worker)}</b>
          <span class="muted">{worker.state}, {busyOf(worker)} of {number(worker.slots)} busy</span>
          <div class="slots" aria-hidden="true">
            {Array.from({ length: Math.min(worker.slots, 40) }, (_, index) => <i key={index} class={index < drawnBusy(worker) ? "on" : ""} />)}
          </div>
        </div>
      ))}
    </div>
  );
}

function useJobs(states: JobState[], limit: number, isAsked = true) {
  return useLoad<JobList>(async () => (isAsked ? post("/v1/jobs/search", { where: { states }, limit }) : { jobs: [], after: null, has_more: false }), [states.join()]);
}

function Runs({ worker, running }: { worker: WorkerView; running: JobList | undefined }) {
  const job = longest(worker, running?.jobs ?? [], now.value);
  if (!job) return <span class="muted">nothing</span>;
  const others = worker.running.length - 1;
  return (
    <>
      <JobLink id={job.id} />
      {job.seconds !== null && <> for {job.seconds ? length(job.seconds) : "a moment"}</>}
      {others > 0 && <span class="muted"> and {number(others)}{namesAll(worker) ? "" : "+"} more</span>}
      {others > 0 && running?.has_more && <span class="muted">, some maybe for longer</span>}
    </>
  );
}

/** The limits that keep workers from jobs that wait, by worker. */
export function limitsByWorker(limits: LimitUsageView[]): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const limit of limits) for (const id of limit.waiting_workers) found.set(id, [...(found.get(id) ?? []), limit.scope]);
  return found;
}

/** What went wrong lately, and at whose hands: one worker that fails where others do well is a sick machine. */
function Failures({ workers: known }: { workers: WorkerView[] }) {
  const found = useJobs(["dead", "retrying"], MOST_FAILURES);
  const names = new Map(known.map((worker) => [worker.id, nameOf(worker)]));
  const jobs = latest(found.data?.jobs ?? []).slice(0, MOST_SHOWN);
  return (
    <Panel title="Recent failures">
      <Waiting error={found.error} isThere={!!found.data} />
      {found.data && !jobs.length && <Empty>{found.data.has_more ? "None of them has failed." : "No job that is there has failed."}</Empty>}
      {found.data?.has_more && <p class="muted">Among the newest {number(found.data.jobs.length)} jobs that are dead or tried again:</p>}
      {jobs.length > 0 && (
        <Table label="Recent failures" head={["Worker", "Started", "Job", "Task", "State", ">Failures", "Why"]}>
          {jobs.map((job) => (
            <tr key={job.id}>
              <td class="clip" title={job.worker!}>{names.get(job.worker!) ?? <span class="muted">gone</span>}</td>
              <td class="tight"><When at={job.started_at} /></td>
              <td class="tight"><JobLink id={job.id} /></td>
              <td class="clip">{job.task}</td>
              <td class="tight"><Badge state={job.state} /></td>
              <td class="right">{number(job.failures)}</td>
              <td class="clip" title={job.reason ?? ""}>{job.reason ?? "is tried again"}</td>
            </tr>
          ))}
        </Table>
      )}
    </Panel>
  );
}

const COMMANDS = { pause: "Paused", resume: "Resumed", stop: "Asked to stop" } as const;

export function Workers() {
  const found = workers.value ?? [];
  const stacks = useSignal<{ worker: string; text: string } | null>(null);
  const canControl = may("command");
  const canSearch = may("search");
  const running = useJobs(["running"], MOST_RUNNING, canSearch);
  const limits = useLoad<LimitList>(async () => (may("limits") ? get("/v1/limits") : { limits: [] }), []);
  const limitedBy = limitsByWorker(limits.data?.limits ?? []);
  const send = async (kind: keyof typeof COMMANDS, worker: WorkerView) => {
    if (kind === "stop" && !(await confirm("Stop this worker?", `${nameOf(worker)} lets its ${busyOf(worker)} running jobs end and takes no more.`, "Stop it"))) return;
    const back = { pause: "resume", resume: "pause" } as const;
    const undo = kind === "stop" ? undefined : () => post("/v1/workers/commands", { kind: back[kind], workers: [worker.id] });
    await act(() => post("/v1/workers/commands", { kind, workers: [worker.id] }), `${COMMANDS[kind]}: it hears of it within a second.`, undo);
  };
  const look = async (worker: WorkerView) => {
    stacks.value = { worker: nameOf(worker), text: "ConfirmDialog…" };
    try {
      const sent = await post<CommandList>("/v1/workers/commands", { kind: "stacks", workers: [worker.id] });
      const id = sent.commands[0]!.id;
      for (let left = 30; left > 0 && stacks.value; left--) {
        const [answer] = (await get<CommandList>(`/v1/workers/commands?ids=${id}`)).commands;
        if (answer?.response) {
          stacks.value = { ...stacks.value, text: answer.response };
          return;
        }
        await new Promise((done) => setTimeout(done, 500));
      }
      if (stacks.value) stacks.value = { ...stacks.value, text: "It has not answered." };
    } catch (error) {
      if (stacks.value) stacks.value = { ...stacks.value, text: (error as Error).message };
    }
  };
  return (
    <Page title="Workers" sub={`${number(found.filter((one) => one.heartbeat_status === "alive").length)} alive, ${busyOf(...found)} of ${number(found.reduce((sum, one) => sum + one.slots, 0))} slots busy`}>
      <Panel title="Overview">
        <WorkerCells workers={found} />
      </Panel>
      <Panel title="All workers">
        {found.length ? (
          <Table label="Workers" head={["Worker", "State", "Queues", "Running", ">Completed", ">Failed", ">CPU", ">Memory", "Started", "Heartbeat", ""]}>
            {found.map((worker) => (
              <tr key={worker.id}>
                <td class="any" title={worker.id}>{nameOf(worker)}</td>
                <td><Badge state={worker.heartbeat_status} /> <Badge state={worker.state} />{worker.stuck > 0 && <span class="wrong"> {number(worker.stuck)} stuck</span>}{worker.abandoned > 0 && <span class="wrong"> {number(worker.abandoned)} abandoned</span>}{limitedBy.has(worker.id) && <span class="muted"> limited by {limitedBy.get(worker.id)!.join(", ")}</span>}</td>
                <td class="any">{worker.queues.join(", ")}{worker.paused.length > 0 && <span class="muted"> (paused: {worker.paused.join(", ")})</span>}</td>
                <td><Runs worker={worker} running={running.data} /></td>
                <td class="right">{number(worker.completed)}</td>
                <td class="right">{number(worker.failed)}</td>
                <td class="right">{percent(worker.cpu)}</td>
                <td class="right">{bytes(worker.memory)}</td>
                <td><When at={worker.started_at} /></td>
                <td><When at={worker.heartbeat_at} /></td>
                <td class="tight">
                  {canControl && (
                    <div class="actions">
                      <Button aria-label={`Stacks of ${nameOf(worker)}`} onClick={() => void look(worker)}>Stacks</Button>
                      {worker.state === "paused" ? <Button aria-label={`Resume ${nameOf(worker)}`} onClick={() => void send("resume", worker)}>Resume</Button> : <Button aria-label={`Pause ${nameOf(worker)}`} onClick={() => void send("pause", worker)}>Pause</Button>}
                      <Button kind="danger" aria-label={`Stop ${nameOf(worker)}`} onClick={() => void send("stop", worker)}>Stop</Button>
                    </div>
                  )}
                </td>
              </tr>
            ))}
          </Table>
        ) : (
          <Empty>No workers are running. <code>forebay worker package.module:app</code> starts one.</Empty>
        )}
      </Panel>
      {canSearch && <Failures workers={found} />}
      {stacks.value && (
        <Dialog title={`Thread stacks of ${stacks.value.worker}`} wide close={() => (stacks.value = null)}>
          <Code label="Stacks" text={stacks.value.text} />
          <div class="buttons"><Button onClick={() => (stacks.value = null)}>Close</Button></div>
        </Dialog>
      )}
    </Page>
  );
}
