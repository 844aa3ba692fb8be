/** The frame around all views. */

import { useSignal, useSignalEffect } from "@preact/signals";
import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { findProvider, findSession, logIn, logOut, may, session, stayLoggedIn } from "./api";
import { short } from "./format";
import { link, queues, start, stop, trouble } from "./live";
import { addressOf, BASE, listen, place } from "./router";
import { prefer, settings, type Settings } from "./settings";
import type { LoginOptions } from "./types";
import "./styles.css";
import { ConfirmDialog, Button, Field, Toasts } from "./ui";
import { Alerts } from "./views/alerts";
import { Audit } from "./views/audit";
import { Configuration } from "./views/configuration";
import { DeadLetters } from "./views/dead_letters";
import { JobView } from "./views/job";
import { Jobs } from "./views/jobs";
import { KeysView } from "./views/keys";
import { Overview } from "./views/overview";
import { QueueView } from "./views/queue";
import { Queues } from "./views/queues";
import { Schedules } from "./views/schedules";
import { Workers } from "./views/workers";

const VIEWS: { name: string; title: string; view: (props: { id: string }) => preact.JSX.Element; needs?: string; one?: (props: { id: string }) => preact.JSX.Element }[] = [
  { name: "", title: "Overview", view: Overview },
  { name: "queues", title: "Queues", view: Queues, one: QueueView },
  { name: "jobs", title: "Jobs", view: Jobs, one: JobView },
  { name: "dead", title: "Dead letters", view: DeadLetters },
  { name: "schedules", title: "Schedules", view: Schedules, needs: "schedules" },
  { name: "workers", title: "Workers", view: Workers, needs: "workers" },
  { name: "alerts", title: "Alerts", view: Alerts, needs: "alerts" },
  { name: "audit", title: "Audit", view: Audit, needs: "audit" },
  { name: "keys", title: "Keys", view: KeysView, needs: "keys" },
  { name: "configuration", title: "Configuration", view: Configuration },
];

const LINKS = { connecting: "Connecting", live: "Live", polling: "Polling", lost: "No connection" };

function Mark() {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" fill="#0b6e99" />
      <path d="M6 11h20M6 17c3.300 0 3.300 2.500 6.700 2.500S16 17 19.300 17s3.400 2.500 6.700 2.500M6 23c3.300 0 3.300 2.500 6.700 2.500S16 23 19.300 23s3.400 2.500 6.700 2.500" fill="none" stroke="#fff" stroke-width="2.400" stroke-linecap="round" />
    </svg>
  );
}

function Side({ current }: { current: string }) {
  const who = session.value!;
  const dead = (queues.value ?? []).reduce((sum, queue) => sum + queue.counts.dead, 0);
  return (
    <div class="side">
      <a class="brand" href={addressOf([])}>
        <Mark /> Forebay
      </a>
      <nav aria-label="Views">
        {VIEWS.filter((view) => !view.needs || may(view.needs)).map((view) => (
          <a key={view.name} href={addressOf(view.name ? [view.name] : [])} aria-current={view.name === current ? "page" : undefined}>
            {view.title}
            {view.name === "dead" && dead > 0 && <span class="counter">{short(dead)}</span>}
          </a>
        ))}
      </nav>
      <div class="foot">
        <span class={`link ${link.value}`} title={trouble.value}>
          <i />
          {LINKS[link.value]}
        </span>
        <select aria-label="Theme" value={settings.value.theme} onChange={(event) => prefer({ theme: event.currentTarget.value as Settings["theme"] })}>
          <option value="system">System theme</option>
          <option value="light">Light</option>
          <option value="dark">Dark</option>
        </select>
        <span class="who muted">
          {who.is_open ? "No key needed here" : who.name}
          {who.has_key && (
            <Button kind="quiet" onClick={() => void logOut().then(stop)}>
              Log out
            </Button>
          )}
        </span>
      </div>
    </div>
  );
}

function Trouble() {
  if (link.value === "lost") {
    return <p class="notice bad" role="alert">The server cannot be reached. What you see is from before; the page tries again by itself.</p>;
  }
  if (trouble.value) return <p class="notice bad" role="alert">{trouble.value} What you see may be from before.</p>;
  return null;
}

function Frame() {
  const [name = "", id] = place.value.parts;
  const view = VIEWS.find((one) => one.name === name);
  const Shown = id !== undefined && view?.one ? view.one : view?.view;
  useEffect(start, []);
  const isFirst = useRef(true);
  useEffect(() => {
    document.title = `${id ?? view?.title ?? "Nothing"} – Forebay`;
    document.querySelector(".side nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
    // Who cannot see that another view is there is taken to it; a page that was just loaded stays as it is.
    if (!isFirst.current) document.getElementById("main")?.focus({ preventScroll: true });
    isFirst.current = false;
  }, [name, id]);
  return (
    <div class="frame">
      <a class="skip" href="#main" onClick={() => document.getElementById("main")?.focus()}>Skip to the view</a>
      <Side current={name} />
      <main id="main" tabIndex={-1}>
        <Trouble />
        {Shown ? <Shown id={id ?? ""} key={`${name}/${id ?? ""}`} /> : <p class="empty">There is nothing at this address. <a href={addressOf([])}>Overview</a></p>}
      </main>
    </div>
  );
}

const TROUBLES: Record<string, string> = {
  refused: "You are known, but none of your groups may use this server.",
  failed: "The login has failed. Try again; the log of the server says why.",
};

function Login() {
  const provider = useSignal<LoginOptions | undefined>(undefined);
  useEffect(() => {
    findProvider().then((found) => (provider.value = found), () => undefined);
  }, []);
  const trouble = TROUBLES[place.value.query.get("login") ?? ""];
  const key = useSignal("");
  const wrong = useSignal("");
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      await logIn(key.value.trim());
    } catch (error) {
      wrong.value = (error as { status?: number }).status === 401 ? "Invalid API key." : (error as Error).message;
    }
  };
  return (
    <main class="login">
      <form class="panel" onSubmit={submit}>
        <h1 class="brand">
          <Mark /> Forebay
        </h1>
        {trouble && <p class="notice bad" role="alert">{trouble}</p>}
        {provider.value?.path && <a class="button main" href={BASE + provider.value.path}>Sign in with {provider.value.label}</a>}
        <Field label="API key" hint="forebay keys create NAME view|operate|admin makes one." error={wrong.value || undefined}>
          {(id) => <input id={id} type="password" autocomplete="off" autofocus placeholder="fbk_…" value={key.value} onInput={(event) => (key.value = event.currentTarget.value)} />}
        </Field>
        <Button kind="main" type="submit" disabled={!key.value.trim()}>
          Log in
        </Button>
      </form>
    </main>
  );
}

function App() {
  const failed = useSignal("");
  useEffect(() => {
    const find = () => {
      findSession().then(
        () => (failed.value = ""),
        (error: Error) => {
          failed.value = error.message;
          setTimeout(find, 2_000);
        },
      );
    };
    find();
  }, []);
  useSignalEffect(() => {
    if (session.value === null) stop();
  });
  if (session.value === null) return <Login />;
  if (session.value === undefined) {
    return <main class="login"><p class="empty" role="status">{failed.value || "Loading…"}</p></main>;
  }
  return <Frame />;
}

listen();
stayLoggedIn();
render(
  <>
    <App />
    <ConfirmDialog />
    <Toasts />
  </>,
  document.getElementById("app")!,
);
