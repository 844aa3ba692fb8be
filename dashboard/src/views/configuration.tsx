/** What is set: the store, the limits, the queues, and what this browser prefers. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ask, enc, get, may, session } from "../api";
import { length, number, plural } from "../format";
import { link, queues, workers } from "../live";
import { useLoad } from "../load";
import { addressOf } from "../router";
import { prefer, settings } from "../settings";
import { act, Badge, Button, Dialog, Empty, Properties, Field, Page, Panel, QueueLink, confirm, Table, Waiting } from "../ui";
import type { LimitList, LimitView, LimitUsageView } from "../types";
import { Choices } from "./series";

const LOOK_MS = 2_000;

export function Configuration() {
  const who = session.value!;
  const refresh = useSignal(String(settings.value.refresh));
  const ready = useLoad<{ status: string }>(() => get("/health/ready"), []);
  return (
    <Page title="Configuration" sub="The store, the limits, the queues, and what this browser prefers">
      <div class="cols">
        <Panel title="Server">
          <Properties
            rows={[
              ["Store", who.engine],
              ["Store answers", ready.error ? <span class="wrong">{ready.error.message}</span> : ready.data ? "yes" : "…"],
              ["Version", who.version],
              ["Events", link.value],
              ["Keys", who.has_key ? "asked for" : who.is_open ? "not asked for" : "not asked for: the program around knows you"],
              ["You are", who.name],
              ["You may", who.is_open ? "everything" : who.grants.map((grant) => `${grant.role}:${grant.queues}`).join(", ")],
              ["Workers", number((workers.value ?? []).length)],
            ]}
          />
        </Panel>
        <Panel title="This browser">
          <div class="form">
            <div class="field all"><span class="muted">Charts show</span><div><Choices label="Charts show" value={settings.value.range} choices={["1h", "24h", "7d"] as const} choose={(range) => prefer({ range })} /></div></div>
            <div class="field all"><span class="muted">Durations as</span><div><Choices label="Durations as" value={settings.value.spread} choices={["average", "p50", "p95", "p99"] as const} choose={(spread) => prefer({ spread })} /></div></div>
            <Field label="Refresh interval (s)" hint="Used when live events are unavailable.">
              {(id) => <input id={id} type="number" min={1} max={300} value={refresh.value} onInput={(event) => (refresh.value = event.currentTarget.value)} onChange={(event) => prefer({ refresh: Math.min(300, Math.max(1, Number(event.currentTarget.value) || 5)) })} />}
            </Field>
          </div>
        </Panel>
      </div>
      {may("limits") && <Limits />}
      <Panel title="Queues">
        <Table label="Settings of queues" head={["Queue", "State", "Order", ">Weight", ">Lease", ">Most pending", ">Priority", ">Keep finished", ">Keep dead"]}>
          {(queues.value ?? []).map(({ name, state, settings: set }) => (
            <tr key={name}>
              <td><QueueLink name={name} /></td><td><Badge state={state} /></td><td>{String(set["mode"])}</td><td class="right">{String(set["weight"])}</td>
              <td class="right">{length(set["lease_seconds"] as number)}</td><td class="right">{set["max_length"] === null ? "no limit" : number(set["max_length"] as number)}</td>
              <td class="right">{String(set["default_priority"])}</td><td class="right">{length(set["keep_finished_seconds"] as number)}</td><td class="right">{length(set["keep_dead_seconds"] as number)}</td>
            </tr>
          ))}
        </Table>
      </Panel>
    </Page>
  );
}

/** So many of so many. */
export function ofMost(count: number | null, most: number | null): string {
  return count === null || most === null ? "–" : `${number(count)} of ${number(most)}`;
}

/** How many may start together after a pause: twice the rate unless said otherwise. */
const burstOf = (limit: LimitView) => (limit.rate ? (limit.burst ?? 2 * limit.rate) : null);

/** Who waits for a limit, by name as far as they are known. */
function WaitingWorkers({ limit }: { limit: LimitUsageView }) {
  if (!limit.waiting_workers.length) return <span class="muted">none</span>;
  const names = new Map((workers.value ?? []).map((worker) => [worker.id, `${worker.host} · ${worker.pid}`]));
  return <a href={addressOf(["workers"])} title={limit.waiting_workers.map((id) => names.get(id) ?? id).join(", ")}>{plural(limit.waiting_workers.length, "worker")}</a>;
}

function Limits() {
  const found = useLoad<LimitList>(() => get("/v1/limits"), []);
  useEffect(() => {
    // Token buckets refill with time, without an event.
    const timer = setInterval(found.reload, LOOK_MS);
    return () => clearInterval(timer);
  }, []);
  const editing = useSignal<Partial<LimitView> | null>(null);
  const remove = async (limit: LimitView) => {
    if (!(await confirm(`Remove the limit of ${limit.scope}?`, "Its jobs run without it from now on.", "Remove it"))) return;
    const { scope, concurrency, rate, per_seconds, burst } = limit;
    await act(() => ask("DELETE", `/v1/limits/${enc(scope)}`), "Removed.", () => ask("PUT", "/v1/limits", { scope, concurrency, rate, per_seconds, burst }).then(found.reload));
    found.reload();
  };
  return (
    <Panel title="Limits" actions={may("set_limit") && <Button onClick={() => (editing.value = {})}>New limit</Button>}>
      <Waiting error={found.error} isThere={!!found.data} />
      {found.data && (found.data.limits.length ? (
        <Table label="Limits" head={["Scope", "State", ">Running", ">Starts", ">Tokens", ">Jobs waiting", "Waiting workers", ""]}>
          {found.data.limits.map((one) => (
            <tr key={one.scope}>
              <td class="mono">{one.scope}</td><td><Badge state={one.state} /></td>
              <td class="right">{one.concurrency === null || one.scope.startsWith("key:") ? <>{number(one.running)}{one.concurrency !== null && <span class="muted"> ({number(one.concurrency)} each)</span>}</> : ofMost(one.running, one.concurrency)}</td>
              <td class="right">{one.rate ? `${number(one.rate)} in ${length(one.per_seconds)}` : "–"}</td><td class="right">{ofMost(one.tokens, burstOf(one))}</td>
              <td class="right">{number(one.waiting)}</td><td><WaitingWorkers limit={one} /></td>
              <td class="tight">{may("set_limit") && <div class="actions"><Button aria-label={`Edit ${one.scope}`} onClick={() => (editing.value = one)}>Edit</Button><Button kind="danger" aria-label={`Remove ${one.scope}`} onClick={() => void remove(one)}>Remove</Button></div>}</td>
            </tr>
          ))}
        </Table>
      ) : <Empty>No limits. Jobs run in all free slots.</Empty>)}
      {editing.value && <LimitEditor limit={editing.value} close={() => { editing.value = null; found.reload(); }} />}
    </Panel>
  );
}

function LimitEditor({ limit, close }: { limit: Partial<LimitView>; close: () => void }) {
  const scope = useSignal(limit.scope ?? "queue:");
  const most = useSignal(limit.concurrency ? String(limit.concurrency) : "");
  const rate = useSignal(limit.rate ? String(limit.rate) : "");
  const per = useSignal(String(limit.per_seconds ?? 1));
  const burst = useSignal(limit.burst ? String(limit.burst) : "");
  const numberOf = (text: string) => (text ? Number(text) : null);
  const save = async (event: Event) => {
    event.preventDefault();
    const body = { scope: scope.value, concurrency: numberOf(most.value), rate: numberOf(rate.value), ...(rate.value ? { per_seconds: Number(per.value) || 1, burst: numberOf(burst.value) } : {}) };
    if (await act(() => ask("PUT", "/v1/limits", body), "Saved; it holds from the next claim on.")) close();
  };
  return (
    <Dialog title={limit.scope ? `Limit of ${limit.scope}` : "New limit"} close={close}>
      <form onSubmit={save}>
        <div class="form">
          <Field label="Scope" hint="global, queue:NAME, task:NAME or key:KIND">{(id) => <input id={id} required disabled={!!limit.scope} value={scope.value} onInput={(event) => (scope.value = event.currentTarget.value)} />}</Field>
          <Field label="Concurrency">{(id) => <input id={id} type="number" min={1} value={most.value} onInput={(event) => (most.value = event.currentTarget.value)} />}</Field>
          <Field label="Rate">{(id) => <input id={id} type="number" min={1} value={rate.value} onInput={(event) => (rate.value = event.currentTarget.value)} />}</Field>
          <Field label="Burst" hint="May start together after a pause; twice the starts if empty">{(id) => <input id={id} type="number" min={1} value={burst.value} onInput={(event) => (burst.value = event.currentTarget.value)} />}</Field>
          <Field label="Per (s)">{(id) => <input id={id} type="number" min={0.001} step="any" value={per.value} onInput={(event) => (per.value = event.currentTarget.value)} />}</Field>
        </div>
        <div class="buttons"><Button onClick={close}>Cancel</Button><Button kind="main" type="submit">Save</Button></div>
      </form>
    </Dialog>
  );
}
