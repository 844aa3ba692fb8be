/** Who does the work. */

import { useSignal } from "@preact/signals";
import { get, may, post } from "../api";
import { bytes, number } from "../format";
import { workers } from "../live";
import { act, Badge, Button, Code, Dialog, Empty, JobLink, Page, Panel, sure, Table, When } from "../ui";
import type { CommandList, WorkerShape } from "../types";

const nameOf = (worker: WorkerShape) => `${worker.host} · ${worker.pid}`;

export function WorkerCells({ workers: found }: { workers: WorkerShape[] }) {
  if (!found.length) return <Empty>No worker has said that it is alive.</Empty>;
  return (
    <div class="cells">
      {found.map((worker) => (
        <div class={`cell ${worker.pulse}`} key={worker.id}>
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

const COMMANDS = { pause: "Paused", resume: "Resumed", stop: "Asked to stop" } as const;

export function Workers() {
  const found = workers.value ?? [];
  const stacks = useSignal<{ worker: string; text: string } | null>(null);
  const canSteer = may("command");
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
          <Table label="Workers" head={["Worker", "Pulse", "State", "Queues", "Runs", ">Completed", ">Failed", ">Memory", "Started", "Beat", ""]}>
            {found.map((worker) => (
              <tr key={worker.id}>
                <td title={worker.id}>{nameOf(worker)}</td>
                <td><Badge state={worker.pulse} /></td>
                <td><Badge state={worker.state} />{worker.stuck > 0 && <span class="wrong"> {number(worker.stuck)} stuck</span>}</td>
                <td>{worker.queues.join(", ")}{worker.paused.length > 0 && <span class="muted"> (paused: {worker.paused.join(", ")})</span>}</td>
                <td class="clip">{worker.running.length ? <><JobLink id={worker.running[0]!} />{worker.running.length > 1 && <span class="muted"> and {worker.running.length - 1} more</span>}</> : <span class="muted">nothing</span>}</td>
                <td class="right">{number(worker.completed)}</td>
                <td class="right">{number(worker.failed)}</td>
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
      {stacks.value && (
        <Dialog title={`What the threads of ${stacks.value.worker} do`} wide close={() => (stacks.value = null)}>
          <Code label="Stacks" text={stacks.value.text} />
          <div class="buttons"><Button onClick={() => (stacks.value = null)}>Close</Button></div>
        </Dialog>
      )}
    </Page>
  );
}
