/** Form to enqueue a job, or to replay one with other arguments. */

import { useSignal } from "@preact/signals";
import { enc, may, post } from "../api";
import { shown } from "../format";
import { queues } from "../live";
import { addressOf, go } from "../router";
import { act, Button, Dialog, Field } from "../ui";
import type { EnqueueResponse, JobView } from "../types";

interface Read {
  value?: unknown;
  wrong?: string;
}

export const INEXACT = "There is an integer beyond 2^53, which a browser rounds: use another client for it.";

/** Whether a browser holds these values as they are: it takes every number for one with 53 bits. */
export function isExact(value: unknown): boolean {
  if (typeof value === "number") return !Number.isInteger(value) || Number.isSafeInteger(value);
  if (typeof value !== "object" || value === null) return true;
  return Object.values(value).every(isExact);
}

/** A text as JSON of one kind; what is wrong with it, if it is not. */
export function read(text: string, kind: "list" | "object"): Read {
  try {
    const value: unknown = JSON.parse(text || (kind === "list" ? "[]" : "{}"));
    const fits = kind === "list" ? Array.isArray(value) : typeof value === "object" && value !== null && !Array.isArray(value);
    if (!fits) return { wrong: `This must be a JSON ${kind}.` };
    return isExact(value) ? { value } : { wrong: INEXACT };
  } catch (error) {
    return { wrong: `This is not JSON: ${(error as Error).message}` };
  }
}

export function Enqueue({ close, like }: { close: () => void; like?: JobView }) {
  const task = useSignal(like?.task ?? "");
  const queue = useSignal(like?.queue ?? queues.value?.[0]?.name ?? "default");
  const args = useSignal(shown(like?.args ?? []));
  const kwargs = useSignal(shown(like?.kwargs ?? {}));
  const priority = useSignal(like ? String(like.priority) : "");
  const delay = useSignal("0");
  const isHidden = `${args.value}${kwargs.value}`.includes('"***"');
  // What is shown masked or rounded is not what the job has: untouched arguments are taken from it.
  const isSame = like !== undefined && args.value === shown(like.args ?? []) && kwargs.value === shown(like.kwargs ?? {});
  const list: Read = isSame ? {} : read(args.value, "list");
  const named: Read = isSame ? {} : read(kwargs.value, "object");
  const submit = async (event: Event) => {
    event.preventDefault();
    if (list.wrong || named.wrong) return;
    const changed = isSame ? {} : { args: list.value, kwargs: named.value };
    const body = { ...changed, queue: queue.value, delay_seconds: Number(delay.value) || 0, ...(priority.value === "" ? {} : { priority: Number(priority.value) }) };
    const path = like ? `/v1/jobs/${enc(like.id)}/replay` : "/v1/jobs";
    let made = "";
    const isDone = await act(async () => {
      made = (await post<EnqueueResponse>(path, like ? body : { ...body, task: task.value })).id;
    }, "Enqueued.");
    if (isDone) {
      close();
      go(addressOf(["jobs", made]));
    }
  };
  return (
    <Dialog title={like ? `A new job like ${like.id}` : "Enqueue a job"} wide close={close}>
      <form onSubmit={submit}>
        <div class="form">
          <Field label="Task">{(id) => <input id={id} required disabled={!!like} value={task.value} onInput={(event) => (task.value = event.currentTarget.value)} />}</Field>
          <Field label="Queue">
            {(id) => (
              <select id={id} value={queue.value} onChange={(event) => (queue.value = event.currentTarget.value)}>
                {(queues.value ?? []).filter((one) => may(like ? "replay" : "enqueue", one.name)).map((one) => <option key={one.name}>{one.name}</option>)}
              </select>
            )}
          </Field>
          <Field label="Priority" hint="-100 to 100">{(id) => <input id={id} type="number" min={-100} max={100} value={priority.value} onInput={(event) => (priority.value = event.currentTarget.value)} />}</Field>
          <Field label="Delay (s)">{(id) => <input id={id} type="number" min={0} step="any" value={delay.value} onInput={(event) => (delay.value = event.currentTarget.value)} />}</Field>
          <div class="all"><Field label="Arguments" hint="A JSON list" error={list.wrong}>{(id) => <textarea id={id} value={args.value} onInput={(event) => (args.value = event.currentTarget.value)} />}</Field></div>
          <div class="all"><Field label="Named arguments" hint="A JSON object" error={named.wrong}>{(id) => <textarea id={id} value={kwargs.value} onInput={(event) => (kwargs.value = event.currentTarget.value)} />}</Field></div>
        </div>
        {like?.payload_error && <p class="notice warn">Its arguments cannot be shown. Left as they are, they are those of the job.</p>}
        {isSame && !isExact([like.args, like.kwargs]) && <p class="notice warn">{INEXACT} Left as they are, all arguments are those of the job.</p>}
        {isHidden && like && <p class="notice warn">Secrets are not shown. Left as they are, all arguments are those of the job; if you change one, write the secrets, too.</p>}
        <div class="buttons"><Button onClick={close}>Cancel</Button><Button kind="main" type="submit" disabled={!!(list.wrong || named.wrong)}>Enqueue it</Button></div>
      </form>
    </Dialog>
  );
}
