/** Failure groups of dead letters, and gradual revives. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { enc, get, may, post } from "../api";
import { length, number, plural } from "../format";
import { queues } from "../live";
import { type Loaded, useLoad } from "../load";
import { addressOf } from "../router";
import { act, Badge, Button, Dialog, Field, JobLink, Panel, Waiting, When } from "../ui";
import type { FailureGroupList, FailureGroupView, JobFilter, GradualReviveList, GradualReviveRequest, GradualReviveView } from "../types";

const NEWEST = 2_000;
const GROUPS_SHOWN = 10;
const REVIVES_SHOWN = 5;
// Grouping is expensive: it reads errors. It runs again when the number of dead letters has changed, at most this often.
const LOOK_MS = 5_000;
// A gradual revive is moved on every two seconds, and its counts change without any queue's.
const REVIVE_POLL_MS = 2_000;

/** How many of a gradual revive's jobs have come to which end. */
export function endsOf(gradualRevive: GradualReviveView): { count: number; word: string; state: string }[] {
  return [
    { count: gradualRevive.completed, word: "completed", state: "completed" },
    { count: gradualRevive.failed_again, word: "failed again", state: "dead" },
    { count: gradualRevive.waiting, word: "not ended", state: "pending" },
    { count: gradualRevive.removed, word: "removed", state: "cancelled" },
    { count: gradualRevive.refused, word: "not revivable", state: "blocked" },
  ].filter((one) => one.count > 0);
}

export function progressOf(gradualRevive: GradualReviveView): string {
  return [`${number(gradualRevive.revived)} revived`, ...endsOf(gradualRevive).map((one) => `${number(one.count)} ${one.word}`)].join(", ");
}

/** Summary of the dead letters that were scanned. */
export function describeScanned(found: FailureGroupList): string {
  const groups = plural(found.groups.length + found.others, "group");
  return found.is_complete ? `${groups} of ${plural(found.jobs, "dead letter")}` : `${groups} among the newest ${number(found.jobs)}`;
}

/** The sizes of the first batches, as far as there are jobs. */
export function batches(plan: Required<Pick<GradualReviveRequest, "initial_batch" | "growth_factor" | "max_batch">>, jobs: number): number[] {
  const sizes: number[] = [];
  for (let left = jobs; left > 0 && sizes.length < 5; left -= sizes[sizes.length - 1]!) {
    const size = Math.floor(Math.min(plan.max_batch, plan.initial_batch * plan.growth_factor ** sizes.length));
    if (!(size >= 1)) break;
    sizes.push(Math.min(size, left));
  }
  return sizes;
}

export type GroupAction = "revive" | "purge";

interface Props {
  where: () => JobFilter;
  /** Changes when the filters do. */
  filters: string;
  queue: string | undefined;
  /** Revive or delete all of a group at once, after a question. */
  all: (action: GroupAction, group: string) => Promise<void>;
}

export function FailureGroups({ where, filters, queue, all }: Props) {
  const found = useLoad<FailureGroupList>(() => post("/v1/dead-letters/failure-groups", { where: where(), newest: NEWEST }), [filters], false);
  const gradualRevives = useLoad<GradualReviveList>(() => get("/v1/dead-letters/gradual-revives"), []);
  const starting = useSignal<FailureGroupView | null>(null);
  const names = useRef(new Map<string, string>());
  for (const one of found.data?.groups ?? []) names.current.set(one.id, one.message);
  const seen = useRef(-1);
  useEffect(() => {
    const timer = setInterval(() => {
      const dead = (queues.value ?? []).reduce((sum, one) => sum + one.counts.dead, 0);
      if (dead !== seen.current) found.reload();
      seen.current = dead;
    }, LOOK_MS);
    return () => clearInterval(timer);
  }, []);
  const shown = found.data?.groups.slice(0, GROUPS_SHOWN) ?? [];
  return (
    <>
      <GradualRevives found={gradualRevives} names={names.current} />
      {found.data?.jobs !== 0 && <Panel title="Failure groups" actions={found.data && <span class="muted">{describeScanned(found.data)}</span>}>
        <Waiting error={found.error} isThere={!!found.data} />
        <ul class="groups" aria-label="Failure groups">
          {shown.map((one) => (
            <li key={one.id}>
              <div class="what">
                <b title={one.example_reason}>{one.message}</b> <Badge state="dead">{plural(one.jobs, "job")}</Badge>
                <p class="muted">
                  {Object.keys(one.tasks).map((task, index) => <span key={task}>{index > 0 && ", "}<a href={addressOf(["dead"], { queue, task })}>{task}</a></span>)}
                  {" · "}first <When at={one.first_at} />, last <When at={one.last_at} />{" · "}such as <JobLink id={one.example_id} />
                </p>
                {one.frames.length > 0 && <p class="mono muted" title={one.frames.join("\n")}>{one.frames[one.frames.length - 1]}</p>}
              </div>
              <div class="actions">
                {may("start_gradual_revive", queue) && <Button aria-label={`Revive gradually: ${one.message}`} onClick={() => (starting.value = one)}>Revive gradually…</Button>}
                {may("revive_dead", queue) && <Button aria-label={`Revive now: ${one.message}`} onClick={() => void all("revive", one.id).then(found.reload)}>Revive now…</Button>}
                {may("purge_dead", queue) && <Button kind="danger" aria-label={`Delete: ${one.message}`} onClick={() => void all("purge", one.id).then(found.reload)}>Delete…</Button>}
              </div>
            </li>
          ))}
        </ul>
      </Panel>}
      {starting.value && <GradualReviveForm group={starting.value} where={where} close={() => { starting.value = null; gradualRevives.reload(); }} />}
    </>
  );
}

const USUAL = { initial_batch: 10, growth_factor: 2, max_batch: 500, every_seconds: 30, max_failure_percent: 20 };

function GradualReviveForm({ group, where, close }: { group: FailureGroupView; where: () => JobFilter; close: () => void }) {
  const plan = useSignal(USUAL);
  const start = async (event: Event) => {
    event.preventDefault();
    if (await act(() => post<GradualReviveView>("/v1/dead-letters/gradual-revives", { where: where(), group: group.id, ...plan.value }), "The first jobs go back within ten seconds.")) close();
  };
  const field = (label: string, name: keyof typeof USUAL, least: number, most: number, step: number | "any" = 1) => (
    <Field label={label}>
      {(id) => <input id={id} type="number" required min={least} max={most} step={step} value={plan.value[name]} onInput={(event) => (plan.value = { ...plan.value, [name]: event.currentTarget.valueAsNumber })} />}
    </Field>
  );
  const sizes = batches(plan.value, group.jobs);
  const rest = group.jobs - sizes.reduce((sum, one) => sum + one, 0);
  return (
    <Dialog title="Revive gradually" wide close={close}>
      <form onSubmit={start}>
        <p>{plural(group.jobs, "dead letter")}: <b>{group.message}</b></p>
        <div class="form">
          {field("Jobs in the first batch", "initial_batch", 1, 500)}
          {field("Growth factor", "growth_factor", 1, 100, "any")}
          {field("Jobs in a batch at most", "max_batch", 1, 500)}
          {field("Seconds between two batches", "every_seconds", 1, 86_400, "any")}
          {field("Stop if more than N % of a batch fail again", "max_failure_percent", 0, 100, "any")}
        </div>
        <p class="muted" role="status">{sizes.map(number).join(", then ")}{rest > 0 && ", and so on"}; the next batch waits until half of the last one has ended.</p>
        <div class="buttons"><Button onClick={close}>Cancel</Button><Button kind="main" type="submit">Start</Button></div>
      </form>
    </Dialog>
  );
}

const NOTICES = { pause: "Paused.", resume: "Resumed.", stop: "Stopped. Jobs that were revived go on." } as const;

function GradualRevives({ found, names }: { found: Loaded<GradualReviveList>; names: ReadonlyMap<string, string> }) {
  const shown = found.data?.gradual_revives.slice(0, REVIVES_SHOWN) ?? [];
  const isOpen = shown.some((one) => one.state === "running");
  useEffect(() => {
    if (!isOpen) return;
    const timer = setInterval(found.reload, REVIVE_POLL_MS);
    return () => clearInterval(timer);
  }, [isOpen]);
  const control = async (one: GradualReviveView, verb: keyof typeof NOTICES) => {
    await act(() => post<GradualReviveView>(`/v1/dead-letters/gradual-revives/${enc(one.name)}/${verb}`), NOTICES[verb]);
    found.reload();
  };
  const button = (one: GradualReviveView, verb: keyof typeof NOTICES, title: string) =>
    may(`${verb}_gradual_revive`, one.queues[0]) && <Button aria-label={`${title} the gradual revive ${one.name}`} onClick={() => void control(one, verb)}>{title}</Button>;
  if (!shown.length) return null;
  return (
    <Panel title="Gradual revives">
      <ul class="groups" aria-label="Gradual revives">
        {shown.map((one) => (
          <li key={one.name}>
            <div class="what">
              <b>{(one.group && (names.get(one.group) ?? `Group ${one.group}`)) || "All matching"}</b> <Badge state={one.state} />
              <p>{progressOf(one)}{one.reason && `: ${one.reason}`}</p>
              <div class="bar" role="img" aria-label={progressOf(one)}>
                {endsOf(one).map((end) => <span key={end.word} class={`s-${end.state}`} style={{ flexGrow: end.count }} />)}
              </div>
              <p class="muted">
                {one.started_by.split("#")[0] || "unknown"}, <When at={one.started_at} />{" · "}
                {one.ended_at ? <>ended <When at={one.ended_at} /></> : one.state === "running" && <>batch {number(one.batches + 1)} <When at={one.next_at} /></>}
                {" · "}every {length(one.every_seconds)}, stops beyond {number(one.max_failure_percent)} %
              </p>
            </div>
            <div class="actions">
              {one.state === "running" && button(one, "pause", "Pause")}
              {(one.state === "paused" || one.state === "stopped") && button(one, "resume", "Resume")}
              {(one.state === "paused" || one.state === "running") && button(one, "stop", "Stop")}
            </div>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
