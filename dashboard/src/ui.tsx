/** The parts that all views are made of. */

import { signal, useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useLayoutEffect, useRef } from "preact/hooks";
import { ago, exact, number } from "./format";
import { now } from "./live";
import { addressOf } from "./router";
import type { CountsView, JobState } from "./types";

export const STATES: JobState[] = ["pending", "running", "retrying", "scheduled", "blocked", "completed", "dead", "cancelled"];

type Kids = { children?: ComponentChildren };

export function Button(props: JSX.IntrinsicElements["button"] & { kind?: "plain" | "main" | "danger" | "quiet" }) {
  const { kind = "plain", class: more, ...rest } = props;
  return <button type="button" {...rest} class={`button ${kind} ${more ?? ""}`} />;
}

export function Badge({ state, children }: { state: string } & Kids) {
  return <span class={`badge s-${state}`}>{children ?? state}</span>;
}

export function When({ at }: { at: string | null | undefined }) {
  return (
    <time dateTime={at ?? undefined} title={exact(at)}>
      {ago(at, now.value)}
    </time>
  );
}

export function JobLink({ id, children }: { id: string } & Kids) {
  return (
    <a class="mono" href={addressOf(["jobs", id])} title={id}>
      {children ?? (id.length > 15 ? `${id.slice(0, 14)}…` : id)}
    </a>
  );
}

export function QueueLink({ name }: { name: string }) {
  return <a href={addressOf(["queues", name])}>{name}</a>;
}

export function Panel({ title, actions, children, class: more = "" }: { title?: ComponentChildren; actions?: ComponentChildren; class?: string } & Kids) {
  return (
    <section class={`panel ${more}`}>
      {(title || actions) && (
        <header>
          <h2>{title}</h2>
          <div class="actions">{actions}</div>
        </header>
      )}
      {children}
    </section>
  );
}

export function Page({ title, sub, actions, children }: { title: ComponentChildren; sub?: ComponentChildren; actions?: ComponentChildren } & Kids) {
  return (
    <>
      <header class="page-head">
        <div>
          <h1>{title}</h1>
          {sub && <p class="muted">{sub}</p>}
        </div>
        <div class="actions">{actions}</div>
      </header>
      {children}
    </>
  );
}

export function Empty({ children }: Kids) {
  return <p class="empty">{children}</p>;
}

/** What went wrong, or that something is still on its way. */
export function Waiting({ error, isThere }: { error: Error | undefined; isThere: boolean }) {
  if (error) {
    return (
      <p class="notice bad" role="alert">
        {error.message}
        {isThere && " What you see is from before."}
      </p>
    );
  }
  return isThere ? null : <p class="empty">Loading…</p>;
}

export function Table({ head, children, label }: { head: ComponentChildren[]; label: string } & Kids) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    // On a phone rows with buttons stand as cards, and each cell says what it is.
    const names = head.map((one) => (typeof one === "string" ? one.replace(/^>/, "") : ""));
    for (const row of box.current?.querySelectorAll("tbody tr") ?? []) {
      [...row.children].forEach((cell, index) => names[index] && cell.setAttribute("data-head", names[index]));
    }
  });
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label} ref={box}>
      <table>
        <thead>
          <tr>{head.map((one, index) => (one === "" ? <td key={index} /> : <Head key={index} name={one} />))}</tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

/** The head of a column; a > before its name puts it to the right, above numbers. */
function Head({ name }: { name: ComponentChildren }) {
  const isRight = typeof name === "string" && name.startsWith(">");
  return <th scope="col" class={isRight ? "right" : ""}>{isRight ? (name as string).slice(1) : name}</th>;
}

/** How jobs are spread over states, as a bar; the numbers stand beside it for who cannot see it. */
export function StateBar({ counts, states = STATES }: { counts: CountsView; states?: JobState[] }) {
  const total = states.reduce((sum, state) => sum + counts[state], 0);
  const said = states.filter((state) => counts[state]).map((state) => `${number(counts[state])} ${state}`).join(", ") || "no jobs";
  return (
    <div class="bar" role="img" aria-label={said} title={said}>
      {states.map((state) => counts[state] > 0 && <span key={state} class={`s-${state}`} style={{ flexGrow: Math.max(counts[state] / total, 0.015) }} />)}
    </div>
  );
}

export function Field({ label, hint, error, children }: { label: string; hint?: string; error?: string | undefined; children: (id: string) => ComponentChildren }) {
  const id = useId();
  const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ");
  useEffect(() => {
    // Screen readers read the hint and the error with their field.
    const input = document.getElementById(id);
    if (described) input?.setAttribute("aria-describedby", described);
    else input?.removeAttribute("aria-describedby");
    if (error) input?.setAttribute("aria-invalid", "true");
    else input?.removeAttribute("aria-invalid");
  }, [id, described, error]);
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children(id)}
      {hint && <small class="muted" id={`${id}-hint`}>{hint}</small>}
      {error && <small class="wrong" role="alert" id={`${id}-error`}>{error}</small>}
    </div>
  );
}

/** A text to search for: what is being typed stays while the view around it is drawn again, and counts when it is done. */
export function Search({ id, value, hint, found }: { id: string; value: string; hint?: string; found: (text: string) => void }) {
  const draft = useSignal(value);
  useEffect(() => {
    draft.value = value;
  }, [value]);
  return <input id={id} type="search" placeholder={hint} value={draft.value} onInput={(event) => (draft.value = event.currentTarget.value)} onChange={(event) => found(event.currentTarget.value.trim())} />;
}

export function Code({ text, label }: { text: string; label: string }) {
  return (
    <pre class="code" tabIndex={0} role="region" aria-label={label}>
      {text}
    </pre>
  );
}

export function Properties({ rows }: { rows: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value ?? "–"}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A dialog of the browser: it keeps the focus inside, and Escape closes it. */
export function Dialog({ title, close, children, wide = false }: { title: string; close: () => void; wide?: boolean } & Kids) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    ref.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog ref={ref} aria-labelledby={id} class={wide ? "wide" : ""} onClose={close}>
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}

// Toasts

interface Toast {
  id: number;
  text: string;
  kind: "good" | "bad";
  undo?: (() => Promise<unknown>) | undefined;
}

const toasts = signal<Toast[]>([]);
let toastId = 0;

export function toast(text: string, kind: "good" | "bad" = "good", undo?: () => Promise<unknown>): void {
  const id = ++toastId;
  toasts.value = [...toasts.value.slice(-3), { id, text, kind, undo }];
  setTimeout(() => drop(id), undo ? 10_000 : kind === "bad" ? 10_000 : 5_000);
}

function drop(id: number): void {
  toasts.value = toasts.value.filter((one) => one.id !== id);
}

/** Do something that may fail, and say how it went; whether it has worked. */
export async function act(action: () => Promise<unknown>, done: string | ((answer: never) => string), undo?: () => Promise<unknown>): Promise<boolean> {
  try {
    const answer = await action();
    toast(typeof done === "string" ? done : done(answer as never), "good", undo);
    return true;
  } catch (error) {
    toast((error as Error).message, "bad");
    return false;
  }
}

/** Ask for something that may fail; nothing, once that was said. */
export async function tried<T>(action: () => Promise<T>): Promise<T | undefined> {
  try {
    return await action();
  } catch (error) {
    toast((error as Error).message, "bad");
    return undefined;
  }
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((one) => (
        <div key={one.id} class={`toast ${one.kind}`}>
          <span>{one.text}</span>
          {one.undo && (
            <Button kind="quiet" onClick={() => { drop(one.id); void act(one.undo!, "Undone."); }}>
              Undo
            </Button>
          )}
          <Button kind="quiet" aria-label="Close this message" onClick={() => drop(one.id)}>
            ✕
          </Button>
        </div>
      ))}
    </div>
  );
}

// Questions before something happens

interface Question {
  title: string;
  text: ComponentChildren;
  verb: string;
  isDanger: boolean;
  answer: (isYes: boolean) => void;
}

const question = signal<Question | null>(null);

/** Ask the user to confirm an action. */
export function confirm(title: string, text: ComponentChildren, verb: string, isDanger = true): Promise<boolean> {
  return new Promise((resolve) => {
    question.value = {
      title, text, verb, isDanger,
      answer: (isYes) => {
        question.value = null;
        resolve(isYes);
      },
    };
  });
}

export function ConfirmDialog() {
  const one = question.value;
  if (!one) return null;
  return (
    <Dialog title={one.title} close={() => one.answer(false)}>
      <div class="text">{one.text}</div>
      <div class="buttons">
        <Button onClick={() => one.answer(false)}>{one.verb.startsWith("Cancel") ? "Go back" : "Cancel"}</Button>
        <Button kind={one.isDanger ? "danger" : "main"} onClick={() => one.answer(true)}>
          {one.verb}
        </Button>
      </div>
    </Dialog>
  );
}
