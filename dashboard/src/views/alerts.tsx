/** Alerts, alert rules and notification channels. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ask, enc, get, may, post } from "../api";
import { length } from "../format";
import { queues } from "../live";
import { type Loaded, useLoad } from "../load";
import { addressOf, go, place } from "../router";
import { act, Badge, Button, Dialog, Empty, Field, Page, Panel, Search, confirm, Table, Waiting, When } from "../ui";
import type { AlertList, AlertView, ChannelList, AlertRuleList, RuleRequest, AlertRuleView, Severity } from "../types";

const SEVERITIES: Severity[] = ["critical", "warning", "info"];
const COLOURS: Record<Severity, string> = { critical: "dead", warning: "retrying", info: "scheduled" };
const MOST = 1_000;
const SHOWN: Record<string, { title: string; none: string; asked: Record<string, string> }> = {
  "": { title: "Active", none: "Nothing is wrong.", asked: { all: "true", active: "true" } },
  unseen: { title: "Unacknowledged", none: "No unacknowledged alerts.", asked: { active: "true" } },
  over: { title: "Resolved", none: "No resolved alerts.", asked: { all: "true", active: "false" } },
  all: { title: "All", none: "No alerts yet.", asked: { all: "true" } },
};

/** Alerts of a rule whose message or source has a text in it. */
export function fitting(alerts: AlertView[], rule: string | undefined, text: string | undefined): AlertView[] {
  const wanted = text?.toLowerCase() ?? "";
  return alerts.filter((one) => (!rule || one.rule === rule) && `${one.message} ${one.source}`.toLowerCase().includes(wanted));
}
// Interval of evaluation; an alert may come without a change of any job.
const LOOK_MS = 10_000;

export function Alerts() {
  const { query } = place.value;
  const wanted = Object.fromEntries(query);
  const set = (name: string, value: string) => go(addressOf(["alerts"], { ...wanted, [name]: value || undefined }), true);
  const show = SHOWN[wanted["show"] ?? ""] ?? SHOWN[""]!;
  const asked = new URLSearchParams({ ...show.asked, limit: String(MOST) });
  if (wanted["severity"]) asked.set("severity", wanted["severity"]);
  const found = useLoad<AlertList>(() => get(`/v1/alerts?${asked}`), [asked.toString()], false);
  const rules = useLoad<AlertRuleList>(() => get("/v1/alert-rules"), [], false);
  const alerts = fitting(found.data?.alerts ?? [], wanted["rule"], wanted["text"]);
  useEffect(() => {
    const timer = setInterval(found.reload, LOOK_MS);
    return () => clearInterval(timer);
  }, []);
  const action = async (one: AlertView, verb: "acknowledge" | "resolve", done: string) => {
    await act(() => post(`/v1/alerts/${enc(one.id)}/${verb}`), done);
    found.reload();
  };
  return (
    <Page title="Alerts" sub="Alerts, rules and notification channels">
      <Panel>
        <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
          <Field label="Show">
            {(id) => <select id={id} value={wanted["show"] ?? ""} onChange={(event) => set("show", event.currentTarget.value)}>{Object.entries(SHOWN).map(([name, one]) => <option key={name} value={name}>{one.title}</option>)}</select>}
          </Field>
          <Field label="Severity">
            {(id) => <select id={id} value={wanted["severity"] ?? ""} onChange={(event) => set("severity", event.currentTarget.value)}><option value="">All</option>{SEVERITIES.map((one) => <option key={one}>{one}</option>)}</select>}
          </Field>
          <Field label="Rule">
            {(id) => <select id={id} value={wanted["rule"] ?? ""} onChange={(event) => set("rule", event.currentTarget.value)}><option value="">All</option>{(rules.data?.rules ?? []).map((one) => <option key={one.id} value={one.id}>{one.name}</option>)}</select>}
          </Field>
          <Field label="Text">
            {(id) => <Search id={id} hint="What it says, or is about" value={wanted["text"] ?? ""} found={(value) => set("text", value)} />}
          </Field>
        </form>
      </Panel>
      <Panel title="Alerts">
        <Waiting error={found.error} isThere={!!found.data} />
        {found.data && (alerts.length ? (
          <Table label="Alerts" head={["Severity", "What", "About", "Since", "Acknowledged by", "Resolved", ""]}>
            {alerts.map((one) => (
              <tr key={one.id}>
                <td><Badge state={COLOURS[one.severity]}>{one.severity}</Badge></td>
                <td title={one.condition}>{one.message}</td>
                <td class="clip">{one.source}</td>
                <td class="tight"><When at={one.triggered_at} /></td>
                <td class="clip">{one.acknowledged_at ? one.acknowledged_by.split("#")[0] || "unknown" : "–"}</td>
                <td class="tight">{one.resolved_at ? <When at={one.resolved_at} /> : "–"}</td>
                <td class="tight">
                  <div class="actions">
                    {!one.acknowledged_at && may("acknowledge_alert") && <Button aria-label={`Acknowledge: ${one.message}`} onClick={() => void action(one, "acknowledge", "Acknowledged.")}>Acknowledge</Button>}
                    {one.is_active && may("resolve_alert") && <Button aria-label={`Resolve: ${one.message}`} onClick={() => void action(one, "resolve", "Resolved.")}>Resolve</Button>}
                  </div>
                </td>
              </tr>
            ))}
          </Table>
        ) : <Empty>{found.data.alerts.length ? "No alert fits." : show.none}</Empty>)}
      </Panel>
      <Rules found={rules} />
      {may("alert_channels") && <Channels />}
    </Page>
  );
}

function Rules({ found }: { found: Loaded<AlertRuleList> }) {
  const editing = useSignal<AlertRuleView | "new" | null>(null);
  const path = (one: AlertRuleView) => `/v1/alert-rules/${enc(one.id)}`;
  const toggle = async (one: AlertRuleView) => {
    await act(() => ask("PUT", path(one), requestOf({ ...one, enabled: !one.enabled })), one.enabled ? `${one.id} is off.` : `${one.id} is on.`);
    found.reload();
  };
  const remove = async (one: AlertRuleView) => {
    const said = one.is_builtin ? "The built-in definition is restored." : "Its alert, if there is one, is resolved.";
    if (!(await confirm(`${one.is_builtin ? "Reset" : "Remove"} ${one.id}?`, said, one.is_builtin ? "Reset it" : "Remove it"))) return;
    await act(() => ask("DELETE", path(one)), one.is_builtin ? "Reset to default." : "Removed.");
    found.reload();
  };
  return (
    <Panel title="Rules" actions={may("create_alert_rule") && <Button onClick={() => (editing.value = "new")}>New rule</Button>}>
      <Waiting error={found.error} isThere={!!found.data} />
      {found.data && (
        <Table label="Rules" head={["Rule", "Severity", "Condition", "About", ">Window", ">Hold", ""]}>
          {found.data.rules.map((one) => (
            <tr key={one.id}>
              <td title={one.id}>{one.name} {!one.enabled && <Badge state="paused">off</Badge>}</td>
              <td><Badge state={COLOURS[one.severity]}>{one.severity}</Badge></td>
              <td><code>{one.condition}</code></td>
              <td>{one.queue ?? one.task ?? (one.per ? `each ${one.per}` : "all")}</td>
              <td class="right">{length(one.window_seconds)}</td>
              <td class="right">{one.hold_for_seconds ? length(one.hold_for_seconds) : "–"}</td>
              <td class="tight">
                {may("save_alert_rule") && (
                  <div class="actions">
                    <Button aria-label={`${one.enabled ? "Disable" : "Enable"} ${one.id}`} onClick={() => void toggle(one)}>{one.enabled ? "Disable" : "Enable"}</Button>
                    <Button aria-label={`Edit ${one.id}`} onClick={() => (editing.value = one)}>Edit</Button>
                    <Button kind="danger" aria-label={`${one.is_builtin ? "Reset" : "Remove"} ${one.id}`} onClick={() => void remove(one)}>{one.is_builtin ? "Reset" : "Remove"}</Button>
                  </div>
                )}
              </td>
            </tr>
          ))}
        </Table>
      )}
      {editing.value && <Editor rule={editing.value === "new" ? undefined : editing.value} metrics={found.data?.metrics ?? {}} close={() => { editing.value = null; found.reload(); }} />}
    </Panel>
  );
}

/** A rule as it is saved. */
export function requestOf(rule: AlertRuleView): RuleRequest {
  const { id: _, is_builtin: __, ...rest } = rule;
  return rest;
}

const FRESH: AlertRuleView = {
  id: "", name: "", condition: "queue_depth > 1000", severity: "warning", window_seconds: 300, hold_for_seconds: 0, cooldown_seconds: 300,
  enabled: true, queue: null, task: null, per: null, is_builtin: false,
};

function Editor({ rule, metrics, close }: { rule: AlertRuleView | undefined; metrics: Record<string, string>; close: () => void }) {
  const draft = useSignal<AlertRuleView>(rule ?? FRESH);
  const wrong = useSignal("");
  const one = draft.value;
  const set = (some: Partial<AlertRuleView>) => (draft.value = { ...draft.value, ...some });
  const save = async (event: Event) => {
    event.preventDefault();
    try {
      if (rule) await ask("PUT", `/v1/alert-rules/${enc(rule.id)}`, requestOf(one));
      else await post("/v1/alert-rules", { ...requestOf(one), ...(one.id ? { id: one.id } : {}) });
      close();
    } catch (error) {
      wrong.value = (error as Error).message;
    }
  };
  const seconds = (label: string, name: "window_seconds" | "hold_for_seconds" | "cooldown_seconds") => (
    <Field label={label}>{(id) => <input id={id} type="number" min={name === "window_seconds" ? 10 : 0} step="any" required value={one[name]} onInput={(event) => set({ [name]: Number(event.currentTarget.value) })} />}</Field>
  );
  return (
    <Dialog title={rule ? `Rule ${rule.id}` : "New rule"} wide close={close}>
      <form onSubmit={save}>
        <div class="form">
          {!rule && <Field label="Id" hint="Empty: it is given one">{(id) => <input id={id} pattern="[a-z0-9][a-z0-9_.\-]{0,49}" value={one.id} onInput={(event) => set({ id: event.currentTarget.value })} />}</Field>}
          <Field label="Name">{(id) => <input id={id} required maxLength={100} value={one.name} onInput={(event) => set({ name: event.currentTarget.value })} />}</Field>
          <Field label="Condition" error={wrong.value || undefined} hint="error_rate > 0.05 and queue_depth > 1000">{(id) => <input id={id} class="mono" required maxLength={500} value={one.condition} onInput={(event) => set({ condition: event.currentTarget.value })} />}</Field>
          <Field label="Severity">{(id) => <select id={id} value={one.severity} onChange={(event) => set({ severity: event.currentTarget.value as Severity })}>{SEVERITIES.map((each) => <option key={each}>{each}</option>)}</select>}</Field>
          {seconds("Window in seconds", "window_seconds")}
          {seconds("Hold for (s)", "hold_for_seconds")}
          {seconds("Seconds between two alerts", "cooldown_seconds")}
          <Field label="Queue">{(id) => <select id={id} value={one.queue ?? ""} onChange={(event) => set({ queue: event.currentTarget.value || null })}><option value="">All</option>{(queues.value ?? []).map((each) => <option key={each.name}>{each.name}</option>)}</select>}</Field>
          <Field label="Task">{(id) => <input id={id} maxLength={100} value={one.task ?? ""} onInput={(event) => set({ task: event.currentTarget.value || null })} />}</Field>
          <Field label="Evaluate per">{(id) => <select id={id} value={one.per ?? ""} onChange={(event) => set({ per: (event.currentTarget.value || null) as AlertRuleView["per"] })}><option value="">All together</option><option value="queue">queue</option><option value="task">task</option></select>}</Field>
        </div>
        <details class="text">
          <summary>Metrics</summary>
          <dl class="facts">{Object.entries(metrics).map(([name, said]) => <div key={name}><dt class="mono">{name}</dt><dd>{said}</dd></div>)}</dl>
        </details>
        <div class="buttons"><Button onClick={close}>Cancel</Button><Button kind="main" type="submit">Save</Button></div>
      </form>
    </Dialog>
  );
}

function Channels() {
  const found = useLoad<ChannelList>(() => get("/v1/alert-channels"), [], false);
  const remove = async (name: string) => {
    if (!(await confirm(`Remove ${name}?`, "It receives no more alerts.", "Remove it"))) return;
    await act(() => ask("DELETE", `/v1/alert-channels/${enc(name)}`), "Removed.");
    found.reload();
  };
  return (
    <Panel title="Channels">
      <Waiting error={found.error} isThere={!!found.data} />
      {found.data && (found.data.channels.length ? (
        <Table label="Channels" head={["Channel", "Kind", "Where", "From", ""]}>
          {found.data.channels.map((one) => (
            <tr key={one.name}>
              <td>{one.name} {!one.enabled && <Badge state="paused">off</Badge>}</td>
              <td>{one.kind}</td>
              <td class="clip">{one.url ?? one.to?.join(", ")}</td>
              <td>{one.severity}</td>
              <td class="tight">{may("remove_alert_channel") && <Button kind="danger" aria-label={`Remove ${one.name}`} onClick={() => void remove(one.name)}>Remove</Button>}</td>
            </tr>
          ))}
        </Table>
      ) : <Empty>No channels. <code>forebay alerts webhook</code> and <code>forebay alerts email</code> add one.</Empty>)}
    </Panel>
  );
}
