/** Dead letters by what they died of, and ramps, by which they come back in batches. */

import { get, may, post } from "../api";
import { counted, number, plural } from "../format";
import { useLoad } from "../load";
import { act, Badge, Button, JobLink, Panel, sure, Table, tried, Waiting, When } from "../ui";
import type { BulkAnswer, GroupList, GroupShape, RampList, RampShape } from "../types";

const NEWEST = 2_000;
const SHOWN = 10;

/** How many of a ramp's jobs have come to which end, in words. */
export function progressOf(ramp: RampShape): string {
  const parts = [
    [ramp.completed, "completed"],
    [ramp.dead, "died again"],
    [ramp.waiting, "not ended"],
    [ramp.refused, "not possible"],
    [ramp.gone, "gone"],
  ] as const;
  const some = parts.filter(([count]) => count > 0).map(([count, word]) => `${number(count)} ${word}`);
  return [`${number(ramp.revived)} revived`, ...some].join(", ");
}

/** What is said about the dead letters that were looked at. */
export function lookedAt(found: GroupList): string {
  const groups = plural(found.groups.length, "group");
  return found.is_whole ? `${groups} of ${plural(found.jobs, "dead letter")}` : `${groups} among the newest ${number(found.jobs)}`;
}

export function FailureGroups({ where, keys, queue, changed }: { where: () => object; keys: string; queue: string | undefined; changed: () => void }) {
  const found = useLoad<GroupList>(() => post("/v1/dead/groups", { where: where(), newest: NEWEST }), [keys], false);
  const ramps = useLoad<RampList>(() => get("/v1/dead/ramps"), []);
  const over = () => {
    found.reload();
    ramps.reload();
    changed();
  };
  const all = async (group: GroupShape, deed: "revive" | "purge") => {
    const body = { where: where(), group: group.id };
    const count = await tried(() => post<BulkAnswer>(`/v1/dead/${deed}`, { ...body, dry_run: true }));
    if (!count) return;
    const words = `${counted(count.matched, count.matched_is_exact)} ${count.matched === 1 ? "dead letter" : "dead letters"}`;
    const isYes = deed === "revive"
      ? await sure("Revive this group?", `${words} go back to their queues at once, with their failures forgotten.`, `Revive ${words}`, false)
      : await sure("Delete this group?", `${words} will be deleted for good.`, `Delete ${words}`);
    if (!isYes) return;
    await act(() => post<BulkAnswer>(`/v1/dead/${deed}`, body), (answer: BulkAnswer) => `${plural(answer.done, "dead letter")} ${deed === "revive" ? "revived" : "deleted"}.`);
    over();
  };
  const ramp = async (group: GroupShape) => {
    const isYes = await sure(
      "Revive this group in batches?",
      `10 of ${plural(group.jobs, "dead letter")} go back first, then twice as many every 30 seconds. It stops when more than 20 % of a batch die again.`,
      "Start",
      false,
    );
    if (!isYes) return;
    await act(() => post<RampShape>("/v1/dead/ramps", { where: where(), group: group.id }), "The first jobs go back in a moment.");
    over();
  };
  const steer = async (one: RampShape, verb: "pause" | "resume" | "stop") => {
    await act(() => post<RampShape>(`/v1/dead/ramps/${one.name}/${verb}`), `The ramp ${verb === "pause" ? "is paused" : verb === "resume" ? "goes on" : "is stopped"}.`);
    over();
  };
  const shown = ramps.data?.ramps.slice(0, 5) ?? [];
  return (
    <>
      {shown.length > 0 && (
        <Panel title="Ramps">
          <Table label="Ramps" head={["Started", "By", "Is", "How far", ""]}>
            {shown.map((one) => (
              <tr key={one.name}>
                <td class="tight"><When at={one.started_at} /></td>
                <td class="clip">{one.started_by}</td>
                <td class="tight"><Badge state={one.state}>{one.state}</Badge></td>
                <td class="clip" title={one.reason}>{progressOf(one)}{one.reason && ` (${one.reason})`}</td>
                <td class="tight">
                  <div class="actions">
                    {may("pause_ramp", one.queues[0]) && one.state === "running" && <Button onClick={() => void steer(one, "pause")}>Pause</Button>}
                    {may("resume_ramp", one.queues[0]) && (one.state === "paused" || one.state === "stopped") && <Button onClick={() => void steer(one, "resume")}>Resume</Button>}
                    {may("stop_ramp", one.queues[0]) && (one.state === "paused" || one.state === "running") && <Button onClick={() => void steer(one, "stop")}>Stop</Button>}
                  </div>
                </td>
              </tr>
            ))}
          </Table>
        </Panel>
      )}
      <Panel title="What they died of">
        <Waiting error={found.error} isThere={!!found.data} />
        {found.data && found.data.groups.length > 0 && (
          <>
            <p class="sub">{lookedAt(found.data)}</p>
            <Table label="Failure groups" head={["Why", "Where", "Tasks", ">Jobs", "First", "Last", "Example", ""]}>
              {found.data.groups.slice(0, SHOWN).map((one) => (
                <tr key={one.id}>
                  <td class="clip" title={one.example_reason}>{one.message}</td>
                  <td class="clip mono" title={one.frames.join("\n")}>{one.frames[one.frames.length - 1] ?? ""}</td>
                  <td class="clip">{Object.keys(one.tasks).join(", ")}</td>
                  <td class="right">{number(one.jobs)}</td>
                  <td class="tight"><When at={one.first_at} /></td>
                  <td class="tight"><When at={one.last_at} /></td>
                  <td class="tight"><JobLink id={one.example_id} /></td>
                  <td class="tight">
                    {may("revive_dead", queue) && (
                      <div class="actions">
                        <Button aria-label={`Revive in batches: ${one.message}`} onClick={() => void ramp(one)}>Ramp…</Button>
                        <Button aria-label={`Revive the group: ${one.message}`} onClick={() => void all(one, "revive")}>Revive…</Button>
                        <Button kind="danger" aria-label={`Delete the group: ${one.message}`} onClick={() => void all(one, "purge")}>Delete…</Button>
                      </div>
                    )}
                  </td>
                </tr>
              ))}
            </Table>
          </>
        )}
      </Panel>
    </>
  );
}
