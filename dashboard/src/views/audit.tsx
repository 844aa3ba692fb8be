/** Who did what, when, and what was before. */

import { post } from "../api";
import { exact, moment, shown } from "../format";
import { now, queues } from "../live";
import { useLoad } from "../load";
import { addressOf, go, place } from "../router";
import { Button, Empty, Field, JobLink, Page, Panel, QueueLink, Search, Table, Waiting } from "../ui";
import type { AuditResponse } from "../types";

const KINDS = ["cancel", "force_cancelled", "revived", "replayed", "updated", "deleted", "queue_changed", "limit_changed", "schedule_changed", "api_key_changed", "alert_changed", "worker_command", "swept", "refused", "parked", "parent_failed", "expired", "gradual_revive", "dropped"];

export function Audit() {
  const { query } = place.value;
  const wanted = Object.fromEntries(query);
  const after = query.get("after");
  const set = (name: string, value: string) => go(addressOf(["audit"], { ...wanted, after: undefined, [name]: value || undefined }), true);
  const found = useLoad<AuditResponse>(
    () =>
      post("/v1/audit/search", {
        limit: 100,
        ...(wanted["kind"] ? { kinds: [wanted["kind"]] } : {}),
        ...(wanted["actor"] ? { actor: wanted["actor"] } : {}),
        ...(wanted["queue"] ? { queue: wanted["queue"] } : {}),
        ...(wanted["job"] ? { job_id: wanted["job"] } : {}),
        ...(after ? { after: Number(after) } : {}),
      }),
    [query.toString()],
    !after,
  );
  const text = (name: string, label: string) => (
    <Field label={label}>{(id) => <Search id={id} value={wanted[name] ?? ""} found={(value) => set(name, value)} />}</Field>
  );
  const select = (name: string, label: string, values: string[]) => (
    <Field label={label}>
      {(id) => <select id={id} value={wanted[name] ?? ""} onChange={(event) => set(name, event.currentTarget.value)}><option value="">All</option>{values.map((one) => <option key={one}>{one}</option>)}</select>}
    </Field>
  );
  return (
    <Page title="Audit" sub="Actions of operators and programs, newest first; kept for 90 days">
      <Panel>
        <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
          {select("kind", "What", KINDS)}
          {text("actor", "Who")}
          {select("queue", "Queue", (queues.value ?? []).map((queue) => queue.name))}
          {text("job", "Job")}
        </form>
      </Panel>
      <Panel>
        <Waiting error={found.error} isThere={!!found.data} />
        {found.data && (found.data.lines.length ? (
          <Table label="Audit log" head={["When", "What", "Who", "Queue", "Job", "Detail", "Changed"]}>
            {found.data.lines.map((line) => (
              <tr key={line.number}>
                <td class="tight"><time dateTime={line.at} title={exact(line.at)}>{moment(line.at, now.value)}</time></td>
                <td>{line.kind}</td>
                <td class="clip" title={line.request}>{line.actor}</td>
                <td>{line.queue && <QueueLink name={line.queue} />}</td>
                <td>{line.job_id && <JobLink id={line.job_id} />}</td>
                <td class="clip" title={line.detail}>{line.detail}</td>
                <td class="clip"><Changed before={line.before} after={line.after} /></td>
              </tr>
            ))}
          </Table>
        ) : <Empty>Nothing fits.</Empty>)}
        {found.data && (after || found.data.has_more) && (
          <div class="buttons">
            {after && <Button onClick={() => set("after", "")}>Newest</Button>}
            {found.data.has_more && <Button onClick={() => go(addressOf(["audit"], { ...wanted, after: String(found.data!.after) }))}>Older</Button>}
          </div>
        )}
      </Panel>
    </Page>
  );
}

const MOST_CHANGES = 3;

function Changed({ before, after }: { before: Record<string, unknown>; after: Record<string, unknown> }) {
  const names = Object.keys({ ...before, ...after });
  return (
    <span title={shown({ before, after })}>
      {names.slice(0, MOST_CHANGES).map((name) => <span key={name}>{name}: {short(before[name])} → {short(after[name])} </span>)}
      {names.length > MOST_CHANGES && <span class="muted">and {names.length - MOST_CHANGES} more</span>}
    </span>
  );
}

function short(value: unknown): string {
  return value === null || value === undefined ? "none" : typeof value === "object" ? "…" : String(value).slice(0, 40);
}
