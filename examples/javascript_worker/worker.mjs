// A worker in JavaScript, without packages (Node 18 or newer). It runs the tasks below, several at a time.
//
//     forebay queues create words --url sqlite:///jobs.db
//     forebay server --url sqlite:///jobs.db &
//     SERVER=http://127.0.0.1:8080 QUEUE=words node worker.mjs
//
// SIGTERM lets running jobs finish. While the server is away it waits, and settles finished jobs afterwards.
import { setTimeout as sleep } from "node:timers/promises";

const { SERVER = "http://127.0.0.1:8080", QUEUE = "default", KEY, ROOM = "4" } = process.env;

class Discard extends Error {} // a retry would not help

const tasks = {
  shout(word) {
    if (typeof word !== "string") throw new Discard("not a word");
    return word.toUpperCase();
  },
  async rest(seconds, { signal }) {
    await sleep(seconds * 1000, undefined, { signal }); // aborted when the job is cancelled
    return seconds;
  },
};

async function post(path, body, signal) {
  const headers = { "Content-Type": "application/json", ...(KEY && { Authorization: `Bearer ${KEY}` }) };
  const answer = await fetch(SERVER + path, { method: "POST", headers, body: JSON.stringify(body), signal });
  const said = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(said.detail), said); // with its status and its code
  return said;
}

// Every request may be repeated: the service keeps the first outcome of a job.
async function surely(path, body, signal) {
  for (let pause = 1; ; pause = Math.min(2 * pause, 30)) {
    try {
      return await post(path, body, signal);
    } catch (error) {
      const isRefused = error.status < 500 && error.status !== 429;
      if (isRefused || signal?.aborted) throw error;
      await sleep(1000 * (error.retry_after_seconds ?? pause), undefined, { signal });
    }
  }
}

async function outcomeOf(job, signal) {
  try {
    return { outcome: "completed", result: (await tasks[job.task](...job.args, { ...job.kwargs, signal })) ?? null };
  } catch (error) {
    if (signal.aborted) return { outcome: "cancelled", error: signal.reason };
    const outcome = error instanceof Discard ? "discarded" : "failed"; // a failed job is retried by its policy
    return { outcome, error: error.message, error_type: error.name, traceback: error.stack };
  }
}

async function run(job) {
  const { id, lease } = job;
  const cancelling = new AbortController();
  const heartbeat = setInterval(async () => {
    try {
      const { cancel } = await post(`/v1/jobs/${encodeURIComponent(id)}/heartbeat`, { lease });
      if (cancel) cancelling.abort(cancel);
    } catch (error) {
      if (error.code === "lease_lost") cancelling.abort("the lease is lost"); // after another error the next heartbeat may succeed
    }
  }, 1000 * job.heartbeat_seconds);
  const outcome = await outcomeOf(job, cancelling.signal);
  clearInterval(heartbeat);
  const { settled } = await surely("/v1/settle", { outcomes: [{ id, lease, ...outcome }] });
  console.log(id, job.task, outcome.outcome, settled[0].problem?.detail ?? "");
}

const stopping = new AbortController();
process.once("SIGTERM", () => stopping.abort());
const running = new Set();
while (!stopping.signal.aborted) {
  if (running.size >= Number(ROOM)) await Promise.race(running);
  // Without a job the server answers after 20 s. A client that disconnects meanwhile is given none.
  const criteria = { queues: [QUEUE], tasks: Object.keys(tasks), limit: Number(ROOM) - running.size };
  const { jobs } = await surely("/v1/claim", criteria, stopping.signal).catch((error) => {
    if (stopping.signal.aborted) return { jobs: [] };
    throw error;
  });
  for (const job of jobs) {
    const done = run(job).finally(() => running.delete(done));
    running.add(done);
  }
}
await Promise.all(running);
