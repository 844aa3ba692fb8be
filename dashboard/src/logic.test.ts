// @vitest-environment happy-dom
import { expect, test, vi } from "vitest";

vi.stubGlobal("EventSource", class { addEventListener() {} close() {} });

const api = await import("./api");
const { covers, may, session } = api;
const live = await import("./live");
const { isUnserved, merged, sampled } = live;
const { addressOf, placeOf } = await import("./router");
const { fitting } = await import("./views/alerts");
const { isExact, read } = await import("./views/enqueue");
const { layout } = await import("./views/graph");
const { batches, endsOf, describeScanned, progressOf } = await import("./views/failure_groups");
const { backOf, timeline } = await import("./views/job");
const { whereOf } = await import("./views/jobs");
const { lately, perSecond } = await import("./views/overview");
const { worst } = await import("./views/queue");
const { draftOf, requestOf } = await import("./views/schedules");
const { rates } = await import("./views/series");
const { ofMost } = await import("./views/configuration");
const { busyOf, heatOf, latest, longest, limitsByWorker } = await import("./views/workers");

const queue = (name: string, counts: object = {}) => ({ name, state: "active", settings: {}, counts: { pending: 0, running: 0, completed: 0, dead: 0, retrying: 0, ...counts } }) as never;
const line = (id: string, more: object = {}) => ({ id, task: "t", queue: "q", state: "dead", reason: "ValueError: 1", tags: [], ...more }) as never;

test("update of queues are put into what is known", () => {
  const known = merged([], { queues: [queue("b"), queue("a")], removed: [], is_all: true });
  const next = merged(known, { queues: [queue("a", { pending: 3 })], removed: ["b"], is_all: false });
  expect(known.map((one) => one.name)).toEqual(["a", "b"]);
  expect(next.map((one) => [one.name, one.counts.pending])).toEqual([["a", 3]]);
});

test("a queue with jobs that no live worker serves is unserved", () => {
  const worker = (heartbeat_status: string, ...served: string[]) => ({ heartbeat_status, queues: served }) as never;
  const waiting = queue("mail", { pending: 2 });
  expect(isUnserved(waiting, [])).toBe(true);
  expect(isUnserved(waiting, [worker("dead", "mail"), worker("alive", "other")])).toBe(true);
  expect(isUnserved(waiting, [worker("stale", "mail")])).toBe(false);
  expect(isUnserved(waiting, undefined)).toBe(false);
  expect(isUnserved(queue("mail"), [])).toBe(false);
  expect(isUnserved(queue("mail", { pending: 2, running: 1 }), [])).toBe(false);
  expect(isUnserved({ ...(waiting as object), state: "paused" } as never, [])).toBe(false);
});

test("samples and rates", () => {
  expect(sampled([queue("a", { pending: 2 }), queue("b", { pending: 3, dead: 1 })], 5)).toMatchObject({ at: 5, pending: 5, dead: 1 });
  expect(rates([10, 12, 12], [0, 1_000, 3_000])).toEqual([null, 2, 0]);
  const seen = [0, 1, 2].map((second) => ({ at: second * 1_000, completed: second * 5 })) as never[];
  expect(perSecond(seen, (one) => one.completed)).toBe(5);
  expect(perSecond([], (one) => one.completed)).toBe(0);
  const counted = { resolution_seconds: 10, times: [], series: [{ name: "completed", values: [900, null, 20, 30, 0, 10, 0, 7] }] } as never;
  expect(lately(counted, "completed")).toBe(1);
  expect([lately(counted, "dead"), lately(null, "completed")]).toEqual([undefined, undefined]);
});

test("who logs in next sees nothing of who was here before", () => {
  vi.useFakeTimers();
  live.start();
  live.queues.value = [queue("a")];
  live.workers.value = [];
  live.lines.value = [{} as never];
  vi.advanceTimersByTime(2_500);
  expect(live.samples.value.length).toBe(2);
  live.stop();
  expect([live.queues.value, live.workers.value, live.lines.value, live.samples.value, live.link.value]).toEqual([undefined, undefined, [], [], "connecting"]);
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});

test("a stream that never opens is one that is down", () => {
  vi.useFakeTimers();
  live.start();
  expect(live.link.value).toBe("connecting");
  vi.advanceTimersByTime(11_000);
  expect(live.link.value).toBe("polling");
  live.stop();
  vi.useRealTimers();
});

test("a page that is mounted under a path keeps to it", async () => {
  document.head.innerHTML = '<meta name="forebay-base" content="/shop/jobs">';
  vi.resetModules();
  const asked = vi.fn(async (_: string) => new Response("{}"));
  vi.stubGlobal("fetch", asked);
  const router = await import("./router");
  const api = await import("./api");
  await api.get("/v1/queues");
  expect(asked.mock.calls[0]?.[0]).toBe("/shop/jobs/v1/queues");
  expect(router.addressOf(["jobs"])).toBe("/shop/jobs/dashboard/jobs");
  expect(router.placeOf("/shop/jobs/dashboard/jobs/7", "").parts).toEqual(["jobs", "7"]);
  document.head.innerHTML = "";
  vi.unstubAllGlobals();
  vi.resetModules();
});

test("requests of the page itself are no use of a session, and a user who reads is one", async () => {
  vi.useFakeTimers();
  const asked = vi.fn(async (_: string, __?: RequestInit) => new Response(JSON.stringify(session.value)));
  vi.stubGlobal("fetch", asked);
  const isBackground = () => "X-Forebay-Background" in (asked.mock.calls.at(-1)?.[1]?.headers as Record<string, string>);
  session.value = { name: "ops", is_open: false, has_key: true, grants: [], operations: [], engine: "", version: "" };
  dispatchEvent(new Event("keydown"));
  await api.get("/v1/queues");
  expect(isBackground()).toBe(false);
  const timer = api.stayLoggedIn();
  await vi.advanceTimersByTimeAsync(59_000);
  expect(asked.mock.calls.length).toBe(2);
  await vi.advanceTimersByTimeAsync(120_000);
  expect(asked.mock.calls.length).toBe(2);
  await api.get("/v1/queues");
  expect(isBackground()).toBe(true);
  clearInterval(timer);
  session.value = undefined;
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("a URL has the filter", () => {
  const place = placeOf("/dashboard/jobs/a%2Fb", "?queue=mail");
  expect(place.parts).toEqual(["jobs", "a/b"]);
  expect(placeOf("/dashboard/jobs/50%", "").parts).toEqual(["jobs", "50%"]);
  expect(addressOf(["jobs", "a/b"], { queue: "mail", state: undefined })).toBe("/dashboard/jobs/a%2Fb?queue=mail");
  const where = whereOf(new URLSearchParams("queue=mail&state=dead&tag=x&since=1h"), Date.parse("2026-01-01T12:00:00Z"));
  expect(where).toEqual({ queues: ["mail"], states: ["dead"], tags: ["x"], created_from: "2026-01-01T11:00:00.000Z" });
});

test("what is offered depends on the key", () => {
  expect([covers("*", "a"), covers("mail-*", "mail-x"), covers("mail", "mail-x")]).toEqual([true, true, false]);
  session.value = { name: "ops", is_open: false, has_key: true, grants: [{ role: "operate", queues: "mail" }], operations: [], engine: "", version: "" };
  expect([may("pause_queue", "mail"), may("pause_queue", "other"), may("configure_queue", "mail"), may("pause_queue")]).toEqual([true, false, false, false]);
  session.value = { ...session.value, grants: [{ role: "view", queues: "*" }], operations: ["search"] };
  expect([may("search"), may("pause_queue", "mail"), may("metric_series", "mail")]).toEqual([true, false, true]);
});

test("groups show how much was scanned, gradual revives their progress", () => {
  const gradualRevive = { revived: 9, completed: 5, failed_again: 1, waiting: 3, refused: 0, removed: 0 } as never;
  expect(progressOf(gradualRevive)).toBe("9 revived, 5 completed, 1 failed again, 3 not ended");
  expect(endsOf(gradualRevive).map((one) => one.state)).toEqual(["completed", "dead", "pending"]);
  expect(describeScanned({ groups: [{}], others: 1, jobs: 7, is_complete: true } as never)).toBe("2 groups of 7 dead letters");
  expect(describeScanned({ groups: [{}], others: 0, jobs: 2_000, is_complete: false } as never)).toBe("1 group among the newest 2,000");
});

test("a gradualRevive says how large its batches will be", () => {
  expect(batches({ initial_batch: 10, growth_factor: 2, max_batch: 500 }, 45)).toEqual([10, 20, 15]);
  expect(batches({ initial_batch: 10, growth_factor: 10, max_batch: 50 }, 1_000)).toEqual([10, 50, 50, 50, 50]);
  expect(batches({ initial_batch: NaN, growth_factor: 2, max_batch: 50 }, 1_000)).toEqual([]);
});

test("what fails most comes first", () => {
  expect(worst([line("1"), line("2", { task: "u" }), line("3", { task: "u" })])[0]).toMatchObject({ task: "u", count: 2 });
});

test("arguments are JSON of the right kind", () => {
  expect(read("", "list")).toEqual({ value: [] });
  expect(read('{"a": 1}', "object")).toEqual({ value: { a: 1 } });
  expect(read("{}", "list").wrong).toContain("list");
  expect(read("[", "list").wrong).toContain("not JSON");
});

test("numbers that a browser would round are not sent", () => {
  expect(isExact([9_007_199_254_740_991, 0.5, { a: [null, "9007199254740993"] }])).toBe(true);
  expect(isExact({ a: [JSON.parse("9007199254740993")] })).toBe(false);
  expect(read("[9007199254740993]", "list").wrong).toContain("2^53");
});

test("a cancelled job goes back to what it was", () => {
  const at = Date.parse("2026-01-01T00:00:00Z");
  expect(backOf({ run_at: "2026-01-01T00:01:00Z" } as never, at)).toEqual({ delay_seconds: 60, reset: false, dependants: true });
  expect(backOf({ run_at: "2025-01-01T00:00:00Z" } as never, at).delay_seconds).toBe(0);
});

test("arguments of a schedule are sent when they were changed", () => {
  const known = { name: "n", task: "t", queue: "q", cron: "0 3 * * *", args: [], kwargs: { token: "***" }, priority: 4, jitter_seconds: 2 } as never;
  const draft = { ...draftOf(known), cron: "0 4 * * *" };
  const request = requestOf(draft, known);
  expect(request).toMatchObject({ task: "t", cron: "0 4 * * *", priority: 4, jitter_seconds: 2 });
  expect(Object.keys(request)).not.toContain("args");
  expect(requestOf({ ...draft, args: "[1]", kwargs: "{}" }, known)).toMatchObject({ args: [1], kwargs: {} });
  expect(requestOf(draft)).toHaveProperty("args");
});

test("a workflow goes from left to right", () => {
  const edge = (parent: string, child: string) => ({ parent, child, edge: "open", on_failure: "cancel" });
  const placed = layout({ jobs: ["d", "a", "b", "c"].map((id) => line(id)), edges: [edge("a", "b"), edge("a", "c"), edge("b", "d"), edge("c", "d")], is_complete: true });
  const x = (id: string) => placed.get(id)!.x;
  expect(x("a")).toBe(0);
  expect(x("b")).toBe(x("c"));
  expect(x("d")).toBeGreaterThan(x("b"));
  expect(placed.get("b")!.y).not.toBe(placed.get("c")!.y);
});

test("the timeline of a job is in order", () => {
  const steps = timeline({
    created_at: "2026-01-01T00:00:00Z", started_at: "2026-01-01T00:00:05Z", finished_at: "2026-01-01T00:00:06Z", state: "completed", attempt: 2, worker: "w", parent_id: null, reason: null,
    attempts: [{ attempt: 1, outcome: "failed", worker: "w", started_at: "2026-01-01T00:00:01Z", ended_at: "2026-01-01T00:00:02Z", error_type: "E", error: "x" }],
    events: [{ kind: "revived", at: "2026-01-01T00:00:03Z", actor: "ann", detail: "", attempt: null }],
  } as never);
  expect(steps.map((step) => step.what)).toEqual(["enqueued", "attempt 1 started", "attempt 1 failed", "revived", "attempt 2 started", "completed"]);
});

test("alerts are narrowed down by rule and text", () => {
  const alerts = [{ rule: "deep", message: "Mail waits", source: "queue:mail" }, { rule: null, message: "Release", source: "deploy" }] as never[];
  expect(fitting(alerts, undefined, undefined).length).toBe(2);
  expect(fitting(alerts, "deep", undefined)).toEqual([alerts[0]]);
  expect(fitting(alerts, undefined, "DEPLOY")).toEqual([alerts[1]]);
});

test("a worker is warm when it is busy, and says what it runs for the longest", () => {
  const worker = { id: "w", heartbeat_status: "alive", slots: 4, running: ["b", "a"] } as never;
  const running = [line("b", { worker: "w", started_at: "2026-01-01T00:00:09Z" }), line("a", { worker: "w", started_at: "2026-01-01T00:00:02Z" }), line("c", { worker: "v", started_at: "2026-01-01T00:00:00Z" })];
  expect(heatOf(worker)).toBe(50);
  expect(longest(worker, running, Date.parse("2026-01-01T00:00:10Z"))).toEqual({ id: "a", seconds: 8 });
  expect(longest(worker, [], 0)).toEqual({ id: "b", seconds: null });
  expect(longest({ id: "w", running: [] } as never, running.slice(2), 0)).toBeUndefined();
});

test("a worker that may run more jobs than it names is taken for a busy one", () => {
  const named = (jobs: number, slots: number) => ({ id: "w", heartbeat_status: "alive", slots, running: Array.from({ length: jobs }, String) }) as never;
  expect([named(9, 50), named(10, 10), named(10, 50)].map((one) => [busyOf(one), heatOf(one)])).toEqual([["9", 18], ["10", 100], ["10+", 100]]);
  expect(busyOf(named(10, 50), named(1, 4))).toBe("11+");
});

test("failures come by their last attempt, and without jobs that have not failed", () => {
  const failed = (id: string, started_at: string | null, failures = 1) => line(id, { worker: "w", started_at, failures });
  const found = [failed("old", "2026-01-01T00:00:01Z"), failed("new", "2026-01-01T00:00:09Z"), failed("well", "2026-01-01T00:00:10Z", 0), failed("odd", null)];
  expect(latest(found).map((one) => one.id)).toEqual(["new", "old", "odd"]);
});

test("limits say what is left of them, and who waits", () => {
  expect([ofMost(3, 5), ofMost(null, 5), ofMost(0, 1_000)]).toEqual(["3 of 5", "–", "0 of 1,000"]);
  const limits = [{ scope: "global", waiting_workers: ["a", "b"] }, { scope: "queue:mail", waiting_workers: ["b"] }, { scope: "task:t", waiting_workers: [] }] as never[];
  expect([...limitsByWorker(limits)]).toEqual([["a", ["global"]], ["b", ["global", "queue:mail"]]]);
});
