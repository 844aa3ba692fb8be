/** The job explorer: filters in the address, a page at a time, and what can be done to all that fit. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { may, post } from "../api";
import { busyNote, counted, exact, length, moment, number } from "../format";
import { now, queues } from "../live";
import { useLoad } from "../load";
import { addressOf, go, place } from "../router";
import { act, Badge, Button, Empty, Field, JobLink, Page, Panel, QueueLink, Search, STATES, confirm, Table, tried, Waiting } from "../ui";
import type { BulkResponse, JobFilter, JobListItem, JobList, JobState } from "../types";
import { Enqueue } from "./enqueue";

const PAGE = 50;
const SPANS: Record<string, number> = { "15m": 900, "1h": 3_600, "24h": 86_400, "7d": 604_800 };

/** What the address says as the conditions of a search. */
export function whereOf(query: URLSearchParams, at: number): JobFilter {
  const where: JobFilter = {};
  const queue = query.get("queue");
  const state = query.get("state");
  const task = query.get("task");
  const text = query.get("text");
  const tag = query.get("tag");
  const span = SPANS[query.get("since") ?? ""];
  if (queue) where.queues = [queue];
  if (state) where.states = [state as JobState];
  if (task) where.tasks = [task];
  if (text) where.text = text;
  if (tag) where.tags = [tag];
  if (span) where.created_from = new Date(at - span * 1_000).toISOString();
  return where;
}

export function Filters({ fields }: { fields: ("queue" | "state" | "task" | "text" | "tag" | "since")[] }) {
  const { query, parts } = place.value;
  const set = (name: string, value: string) => {
    const wanted = Object.fromEntries(query);
    delete wanted["after"];
    go(addressOf(parts, { ...wanted, [name]: value || undefined }), true);
  };
  const text = (name: string, label: string, hint: string) => (
    <Field label={label}>
      {(id) => <Search id={id} hint={hint} value={query.get(name) ?? ""} found={(value) => set(name, value)} />}
    </Field>
  );
  const select = (name: string, label: string, values: string[], all: string) => (
    <Field label={label}>
      {(id) => (
        <select id={id} value={query.get(name) ?? ""} onChange={(event) => set(name, event.currentTarget.value)}>
          <option value="">{all}</option>
          {values.map((one) => <option key={one} value={one}>{one}</option>)}
        </select>
      )}
    </Field>
  );
  return (
    <Panel>
      <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
        {fields.includes("queue") && select("queue", "Queue", (queues.value ?? []).map((queue) => queue.name), "All queues")}
        {fields.includes("state") && select("state", "State", STATES, "All states")}
        {fields.includes("task") && text("task", "Task", "Exact name")}
        {fields.includes("text") && text("text", "Text", "In arguments and errors")}
        {fields.includes("tag") && text("tag", "Tag", "Exact tag")}
        {fields.includes("since") && select("since", "Enqueued", Object.keys(SPANS), "At any time")}
        {[...query.keys()].length > 0 && <div class="field"><Button onClick={() => go(addressOf(parts), true)}>Clear</Button></div>}
      </form>
    </Panel>
  );
}

const COUNT_MS = 15_000;

/** How many fit: asked for when the filters change and now and then, since to count is dearer than to show a page. */
export function useTotal(path: string, query: URLSearchParams): { text: string; reload: () => void } {
  const filters = new URLSearchParams(query);
  filters.delete("after");
  const found = useLoad<JobList>(() => post(path, { where: whereOf(filters, Date.now()), limit: 1, with_total: true }), [filters.toString()], false);
  useEffect(() => {
    const timer = setInterval(found.reload, COUNT_MS);
    return () => clearInterval(timer);
  }, []);
  const total = found.data?.total;
  return { text: total === undefined || total === null ? "" : counted(total, found.data?.total_is_exact), reload: found.reload };
}

export function Jobs() {
  const { query } = place.value;
  const isEnqueuing = useSignal(false);
  const after = query.get("after");
  const key = query.toString();
  const found = useLoad<JobList>(
    async () => {
      const id = query.get("id");
      if (id) go(addressOf(["jobs", id]), true);
      return post<JobList>("/v1/jobs/search", { where: whereOf(query, Date.now()), limit: PAGE, after });
    },
    [key],
    !after,
  );
  const all = useTotal("/v1/jobs/search", query);
  const bulk = async (action: "cancel" | "revive" | "delete") => {
    const where = whereOf(query, Date.now());
    const everything = Object.keys(where).length === 0;
    const count = await tried(() => post<BulkResponse>("/v1/jobs/bulk", { action, where, all: everything, dry_run: true }));
    if (!count) return;
    const jobs = `${counted(count.matched, count.matched_is_exact)} ${count.matched === 1 ? "job" : "jobs"}`;
    const words = { cancel: "Cancel", revive: "Revive", delete: "Delete" }[action];
    const what = { cancel: "that have not ended will be cancelled; running ones are asked to stop.", revive: "that are dead or cancelled go back to their queues.", delete: "that do not run will be deleted for good." }[action];
    if (await confirm(`${words} all matching jobs?`, `${jobs} ${what}`, `${words} ${jobs}`, action !== "revive")) {
      await act(() => post<BulkResponse>("/v1/jobs/bulk", { action, where, all: everything }), (answer: BulkResponse) => `${number(answer.affected)} done.${busyNote(answer.busy)}`);
      found.reload();
      all.reload();
    }
  };
  const queue = query.get("queue") ?? undefined;
  return (
    <Page
      title="Jobs"
      sub={all.text ? `${all.text} matching, newest first` : "Newest first"}
      actions={
        <>
          {may("bulk", queue) && (
            <>
              <Button onClick={() => void bulk("revive")}>Revive matching…</Button>
              <Button onClick={() => void bulk("cancel")}>Cancel all…</Button>
              <Button kind="danger" onClick={() => void bulk("delete")}>Delete all…</Button>
            </>
          )}
          {may("enqueue", queue) && <Button kind="main" onClick={() => (isEnqueuing.value = true)}>Enqueue</Button>}
        </>
      }
    >
      <Filters fields={["queue", "state", "task", "text", "tag", "since"]} />
      <Panel>
        <Waiting error={found.error} isThere={!!found.data} />
        {found.data && (found.data.jobs.length > 0 || !found.data.scanned_back_to) && <JobTable jobs={found.data.jobs} />}
        {found.data?.scanned_back_to && <Stopped at={found.data.scanned_back_to} />}
        {found.data && (after || found.data.has_more) && (
          <div class="buttons">
            {after && <Button onClick={() => go(addressOf(["jobs"], { ...Object.fromEntries(query), after: undefined }))}>Newest</Button>}
            {found.data.has_more && <Button onClick={() => go(addressOf(["jobs"], { ...Object.fromEntries(query), after: found.data!.after! }))}>Older</Button>}
          </div>
        )}
      </Panel>
      {isEnqueuing.value && <Enqueue close={() => (isEnqueuing.value = false)} />}
    </Page>
  );
}

/** A search that has met very many jobs which do not fit says how far back it has come. */
export function Stopped({ at }: { at: string }) {
  return (
    <p class="notice" role="status">
      Searched back to <time dateTime={at}>{exact(at)}</time>. Narrow the filter, or continue with Older.
    </p>
  );
}

export function JobTable({ jobs }: { jobs: JobListItem[] }) {
  if (!jobs.length) return <Empty>No matching jobs.</Empty>;
  return (
    <Table label="Jobs" head={["Job", "State", "Task", "Queue", "Enqueued", ">Duration", ">Attempt", "Reason"]}>
      {jobs.map((job) => (
        <tr key={job.id}>
          <td class="tight"><JobLink id={job.id} /></td>
          <td class="tight"><Badge state={job.state} /></td>
          <td class="clip">{job.task}{job.tags.map((tag) => <span class="muted" key={tag}> #{tag}</span>)}</td>
          <td class="tight"><QueueLink name={job.queue} /></td>
          <td class="tight"><time dateTime={job.created_at} title={exact(job.created_at)}>{moment(job.created_at, now.value)}</time></td>
          <td class="right">{length(job.duration_seconds)}</td>
          <td class="right">{job.attempt}</td>
          <td class="clip" title={job.reason ?? ""}>{job.reason ?? ""}</td>
        </tr>
      ))}
    </Table>
  );
}
