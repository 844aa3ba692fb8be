/** Dead letters: what they have in common, and what to do with them. */

import { useSignal } from "@preact/signals";
import { ask, enc, may, post } from "../api";
import { busyNote, counted, exact, moment, number, plural } from "../format";
import { now } from "../live";
import { useLoad } from "../load";
import { addressOf, go, place } from "../router";
import { act, Badge, Button, Empty, JobLink, Page, Panel, QueueLink, confirm, Table, toast, tried, Waiting } from "../ui";
import type { BulkResponse, JobList } from "../types";
import { type GroupAction, FailureGroups } from "./failure_groups";
import { Filters, Stopped, useTotal, whereOf } from "./jobs";

const PAGE = 100;

export function DeadLetters() {
  const { query } = place.value;
  const after = query.get("after");
  const chosen = useSignal<ReadonlySet<string>>(new Set());
  const found = useLoad<JobList>(
    () => post("/v1/dead-letters/search", { where: whereOf(query, Date.now()), limit: PAGE, after }),
    [query.toString()],
    !after,
  );
  const filters = new URLSearchParams(query);
  filters.delete("after");
  const total = useTotal("/v1/dead-letters/search", query);
  const jobs = found.data?.jobs ?? [];
  const stoppedAt = found.data?.scanned_back_to;
  const isNone = !jobs.length && !stoppedAt;
  const queue = query.get("queue") ?? undefined;
  const picked = jobs.filter((job) => chosen.value.has(job.id));
  const all = async (action: GroupAction, group?: string) => {
    const body = { where: whereOf(query, Date.now()), group };
    const count = await tried(() => post<BulkResponse>(`/v1/dead-letters/${action}`, { ...body, dry_run: true }));
    if (!count) return;
    const words = `${counted(count.matched, count.matched_is_exact)} ${count.matched === 1 ? "dead letter" : "dead letters"}`;
    const isYes = action === "revive"
      ? await confirm(group ? "Revive this group?" : "Revive all matching jobs?", `${words} go back to their queues with their failures forgotten.`, `Revive ${words}`, false)
      : await confirm(group ? "Delete this group?" : "Delete all matching jobs?", `${words} will be deleted for good.`, `Delete ${words}`);
    if (!isYes) return;
    await act(() => post<BulkResponse>(`/v1/dead-letters/${action}`, body), (answer: BulkResponse) => `${plural(answer.affected, "dead letter")} ${action === "revive" ? "revived" : "deleted"}.${busyNote(answer.busy)}`);
    found.reload();
    total.reload();
  };
  const some = async (action: "revive" | "delete") => {
    const words = plural(picked.length, "dead letter");
    const isYes = action === "revive"
      ? await confirm(`Revive ${words}?`, "They go back to their queues with their failures forgotten.", `Revive ${words}`, false)
      : await confirm(`Delete ${words}?`, "They go for good, with their history.", `Delete ${words}`);
    if (!isYes) return;
    // One by one, since what is chosen by hand has nothing in common that a filter could say.
    const done = await Promise.allSettled(picked.map((job) => (action === "revive" ? post(`/v1/jobs/${enc(job.id)}/revive`) : ask("DELETE", `/v1/jobs/${enc(job.id)}`))));
    const refused = done.filter((one) => one.status === "rejected");
    const last = refused[refused.length - 1];
    toast(`${number(done.length - refused.length)} of ${words} ${action === "revive" ? "revived" : "deleted"}.${last ? ` ${(last.reason as Error).message}` : ""}`, last ? "bad" : "good");
    chosen.value = new Set();
    found.reload();
    total.reload();
  };
  const toggle = (id: string) => {
    const next = new Set(chosen.value);
    if (!next.delete(id)) next.add(id);
    chosen.value = next;
  };
  return (
    <Page
      title="Dead letters"
      sub={total.text ? `${total.text} matching, newest first` : "Jobs that failed for good. Revive them to try again."}
      actions={
        may("revive_dead", queue) && (
          <>
            {picked.length > 0 && <Button kind="main" onClick={() => void some("revive")}>Revive {picked.length} chosen</Button>}
            {picked.length > 0 && <Button kind="danger" onClick={() => void some("delete")}>Delete {picked.length} chosen</Button>}
            <Button onClick={() => void all("revive")} disabled={isNone}>Revive matching…</Button>
            <Button kind="danger" onClick={() => void all("purge")} disabled={isNone}>Delete all…</Button>
          </>
        )
      }
    >
      <Filters fields={["queue", "task", "text", "tag", "since"]} />
      <FailureGroups where={() => whereOf(query, Date.now())} filters={filters.toString()} queue={queue} all={all} />
      <Panel>
        <Waiting error={found.error} isThere={!!found.data} />
        {found.data && isNone && <Empty>No dead letters.</Empty>}
        {jobs.length > 0 && (
          <Table
            label="Dead letters"
            head={[
              <input type="checkbox" aria-label="Choose all shown" checked={picked.length === jobs.length} onChange={(event) => (chosen.value = new Set(event.currentTarget.checked ? jobs.map((job) => job.id) : []))} />,
              "Job", "Task", "Queue", "Failed at", ">Attempts", "Error",
            ]}
          >
            {jobs.map((job) => (
              <tr key={job.id}>
                <td class="tight"><input type="checkbox" aria-label={`Choose ${job.id}`} checked={chosen.value.has(job.id)} onChange={() => toggle(job.id)} /></td>
                <td class="tight"><JobLink id={job.id} /></td>
                <td class="clip">{job.task}</td>
                <td class="tight"><QueueLink name={job.queue} /></td>
                <td class="tight"><time dateTime={job.finished_at ?? undefined} title={exact(job.finished_at)}>{moment(job.finished_at, now.value)}</time></td>
                <td class="right">{job.attempt}</td>
                <td class="clip" title={job.reason ?? ""}>{job.reason ?? <Badge state="dead" />}</td>
              </tr>
            ))}
          </Table>
        )}
        {stoppedAt && <Stopped at={stoppedAt} />}
        {found.data && (after || found.data.has_more) && (
          <div class="buttons">
            {after && <Button onClick={() => go(addressOf(["dead"], { ...Object.fromEntries(query), after: undefined }))}>Newest</Button>}
            {found.data.has_more && <Button onClick={() => go(addressOf(["dead"], { ...Object.fromEntries(query), after: found.data!.after! }))}>Older</Button>}
          </div>
        )}
      </Panel>
    </Page>
  );
}
