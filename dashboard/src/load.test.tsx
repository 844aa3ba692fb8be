// @vitest-environment happy-dom
import { render } from "preact";
import { expect, test, vi } from "vitest";
import { changes } from "./live";
import { useLoad } from "./load";

test("a slow answer is shown, and only then the next is asked for", async () => {
  const waiting: ((text: string) => void)[] = [];
  const ask = vi.fn(() => new Promise<string>((resolve) => waiting.push(resolve)));
  function View({ name }: { name: string }) {
    const { data } = useLoad(ask, [name]);
    return <p>{data ?? "nothing"}</p>;
  }
  vi.useFakeTimers();
  const root = document.createElement("div");
  render(<View name="a" />, root);
  await vi.advanceTimersByTimeAsync(100);
  for (let turn = 0; turn < 5; turn++) {
    changes.value += 1;
    await vi.advanceTimersByTimeAsync(1_000);
  }
  expect([ask.mock.calls.length, root.textContent]).toEqual([1, "nothing"]);

  waiting[0]!("first");
  await vi.advanceTimersByTimeAsync(100);
  expect([ask.mock.calls.length, root.textContent]).toEqual([2, "first"]);

  render(<View name="b" />, root); // another question: what comes for the one before is too late
  await vi.advanceTimersByTimeAsync(100);
  waiting[1]!("too late");
  waiting[2]!("other");
  await vi.advanceTimersByTimeAsync(100);
  expect([ask.mock.calls.length, root.textContent]).toEqual([3, "other"]);
  render(null, root);
  vi.useRealTimers();
});
