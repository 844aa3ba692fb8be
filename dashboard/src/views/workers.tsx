/** Who does the work. */

import { useSignal } from "@preact/signals";
import { get, may, post } from "../api";
import { bytes, length, number, percent } from "../format";
import { now, workers } from "../live";
import { useLoad } from "../load";
import { act, Badge, Button, Code, Dialog, Empty, JobLink, Page, Panel, sure, Table, Waiting, When } from "../ui";
import type { CommandList, JobLine, JobList, JobState, WorkerShape } from "../types";

const MOST_RUNNING = 200;
const MOST_FAILURES = 20;

const nameOf = (worker: WorkerShape) => `${worker.host} · ${worker.pid}`;

/** How warm its cell is: the share of its slots that are busy. Who is not alive has none. */
export function heatOf(worker: WorkerShape): number {
  return worker.pulse === "alive" && worker.slots ? Math.round((100 * Math.min(worker.running.length, worker.slots)) / worker.slots) : 0;
}

/** What a worker runs for the longest, and for how many seconds; a job that has just begun may not be known yet. */
export function longest(worker: WorkerShape, running: JobLine[], at: number): { id: string; seconds: number | null } | undefined {
  const mine = running.filter((job) => job.worker === worker.id && job.started_at).sort((a, b) => (a.started_at! < b.started_at! ? -1 : 1));
  const first = mine[0];
  if (first) return { id: first.id, seconds: Math.max(0, Math.floor((at - Date.parse(first.started_at!)) / 1_000)) };
  return worker.running[0] === undefined ? undefined : { id: worker.running[0], seconds: null };
}

export function WorkerCells({ workers: found }: { workers: WorkerShape[] }) {
  if (!found.length) return <Empty>No worker has said that it is alive.</Empty>;
  return (
    <div class="cells">
      {found.map((worker) => (
        <div class={`cell ${worker.pulse}`} key={worker.id} style={{ "--heat": `${heatOf(worker)}%` }}>
          <b title={worker.id}>{nameOf(worker)}</b>
          <span class="muted">{worker.state}, {number(worker.running.length)} of {number(worker.slots)} busy</span>
          <div class="slots" aria-hidden="true">
            {Array.from({ length: Math.min(worker.slots, 40) }, (_, index) => <i key={index} class={index < worker.running.length ? "on" : ""} />)}
          </div>
        </div>
      ))}
    </div>
  );
}

function useJobs(states: JobState[], limit: number, isAsked = true) {
  return useLoad<JobList>(async () => (isAsked ? post("/v1/jobs/search", { where: { states }, limit }) : { jobs: [], after: null, has_more: false }), [states.join()]);
}

function Runs({ worker, running }: { worker: WorkerShape; running: JobLine[] }) {
  const job = longest(worker, running, now.value);
  if (!job) return <span class="muted">nothing</span>;
  const others = worker.running.length - 1;
  return (
    <>
      <JobLink id={job.id} />
      {job.seconds !== null && <> for {length(job.seconds)}</>}
      {others > 0 && <span class="muted"> and {number(others)} more</span>}
    </>
  );
}

/** What went wrong lately, and at whose hands: one worker that fails where others do well is a sick machine. */
function Failures({ workers: known }: { workers: WorkerShape[] }) {
  const found = useJobs(["dead", "retrying"], MOST_FAILURES);
  const names = new Map(known.map((worker) => [worker.id, nameOf(worker)]));
  const jobs = (found.data?.jobs ?? []).filter((job) => job.worker && job.failures > 0);
  return (
    <Panel title="Failures lately">
      <Waiting error={found.error} isThere={!!found.data} />
      {found.data && !jobs.length && <Empty>No job that is there has failed.</Empty>}
      {jobs.length > 0 && (
        <Table label="Failures lately" head={["Worker", "Began", "Job", "Task", "State", ">Failures", "Why"]}>
          {jobs.map((job) => (
            <tr key={job.id}>
              <td class="tight" title={job.worker!}>{names.get(job.worker!) ?? <span class="muted">gone</span>}</td>
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
  const canSteer = may("command");
  const canSearch = may("search");
  const running = useJobs(["running"], MOST_RUNNING, canSearch);
  const send = async (kind: keyof typeof COMMANDS, worker: WorkerShape) => {
    if (kind === "stop" && !(await sure("Stop this worker?", `${nameOf(worker)} lets its ${number(worker.running.length)} running jobs end and takes no more.`, "Stop it"))) return;
    const back = { pause: "resume", resume: "pause" } as const;
    const undo = kind === "stop" ? undefined : () => post("/v1/workers/commands", { kind: back[kind], workers: [worker.id] });
    await act(() => post("/v1/workers/commands", { kind, workers: [worker.id] }), `${COMMANDS[kind]}: it hears of it within a second.`, undo);
  };
  const look = async (worker: WorkerShape) => {
    stacks.value = { worker: nameOf(worker), text: "Asking…" };
    try {
      const sent = await post<CommandList>("/v1/workers/commands", { kind: "stacks", workers: [worker.id] });
      const id = sent.commands[0]!.id;
      for (let left = 30; left > 0 && stacks.value; left--) {
        const [answer] = (await get<CommandList>(`/v1/workers/commands?ids=${id}`)).commands;
        if (answer?.answer) {
          stacks.value = { ...stacks.value, text: answer.answer };
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
    <Page title="Workers" sub={`${number(found.filter((one) => one.pulse === "alive").length)} alive, ${number(found.reduce((sum, one) => sum + one.running.length, 0))} of ${number(found.reduce((sum, one) => sum + one.slots, 0))} slots busy`}>
      <Panel title="At a glance">
        <WorkerCells workers={found} />
      </Panel>
      <Panel title="All workers">
        {found.length ? (
          <Table label="Workers" head={["Worker", "Pulse", "State", "Queues", "Runs", ">Completed", ">Failed", ">CPU", ">Memory", "Started", "Beat", ""]}>
            {found.map((worker) => (
              <tr key={worker.id}>
                <td class="tight" title={worker.id}>{nameOf(worker)}</td>
                <td><Badge state={worker.pulse} /></td>
                <td><Badge state={worker.state} />{worker.stuck > 0 && <span class="wrong"> {number(worker.stuck)} stuck</span>}</td>
                <td>{worker.queues.join(", ")}{worker.paused.length > 0 && <span class="muted"> (paused: {worker.paused.join(", ")})</span>}</td>
                <td class="tight"><Runs worker={worker} running={running.data?.jobs ?? []} /></td>
                <td class="right">{number(worker.completed)}</td>
                <td class="right">{number(worker.failed)}</td>
                <td class="right">{percent(worker.cpu)}</td>
                <td class="right">{bytes(worker.memory)}</td>
                <td><When at={worker.started_at} /></td>
                <td><When at={worker.beat_at} /></td>
                <td class="tight">
                  {canSteer && (
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
          <Empty>No worker has said that it is alive. <code>forebay worker package.module:app</code> starts one.</Empty>
        )}
      </Panel>
      {canSearch && <Failures workers={found} />}
      {stacks.value && (
        <Dialog title={`What the threads of ${stacks.value.worker} do`} wide close={() => (stacks.value = null)}>
          <Code label="Stacks" text={stacks.value.text} />
          <div class="buttons"><Button onClick={() => (stacks.value = null)}>Close</Button></div>
        </Dialog>
      )}
    </Page>
  );
}
