/** API keys: who may do what to which queues. */

import { useSignal } from "@preact/signals";
import { enc, get, post } from "../api";
import { useLoad } from "../load";
import { act, Badge, Button, Code, Dialog, Empty, Field, Page, Panel, confirm, Table, Waiting, When } from "../ui";
import type { KeyList, KeyWithToken, KeyView } from "../types";

const ROLES = ["view", "operate", "produce", "consume", "admin"] as const;

export function KeysView() {
  const found = useLoad<KeyList>(() => get("/v1/keys"), []);
  const isNew = useSignal(false);
  const made = useSignal<KeyWithToken | null>(null);
  const rotate = async (key: KeyView) => {
    if (!(await confirm(`Rotate key ${key.name}?`, "The old one opens for another hour.", "Rotate it", false))) return;
    await act(async () => { made.value = await post<KeyWithToken>(`/v1/keys/${enc(key.name)}/rotate`, { grace_seconds: 3600 }); }, "Rotated.");
    found.reload();
  };
  const revoke = async (key: KeyView) => {
    if (!(await confirm(`Revoke ${key.name}?`, "It opens nothing any more, within five seconds on every server. This cannot be undone.", "Revoke it"))) return;
    await act(() => post(`/v1/keys/${enc(key.name)}/revoke`), `Key ${key.name} is revoked.`);
    found.reload();
  };
  return (
    <Page title="Keys" sub="Who may do what to which queues" actions={<Button kind="main" onClick={() => (isNew.value = true)}>New key</Button>}>
      <Panel>
        <Waiting error={found.error} isThere={!!found.data} />
        {found.data && (found.data.keys.length ? (
          <Table label="Keys" head={["Key", "State", "May", "Made", "Last used", "Ends", ">Rate", ""]}>
            {found.data.keys.map((key) => (
              <tr key={key.name}>
                <td>{key.name}</td>
                <td><Badge state={key.state === "active" ? "active" : "cancelled"}>{key.state}</Badge></td>
                <td class="mono">{key.grants.join(", ")}</td>
                <td><When at={key.created_at} /></td>
                <td><When at={key.used_at} /></td>
                <td>{key.expires_at ? <When at={key.expires_at} /> : "never"}</td>
                <td class="right">{key.rate ? `${key.rate}/s` : "–"}</td>
                <td class="tight">{key.state === "active" && <div class="actions"><Button aria-label={`Rotate ${key.name}`} onClick={() => void rotate(key)}>Rotate</Button><Button kind="danger" aria-label={`Revoke ${key.name}`} onClick={() => void revoke(key)}>Revoke</Button></div>}</td>
              </tr>
            ))}
          </Table>
        ) : <Empty>There are no keys. A server that is started with <code>--require-keys</code> lets in only who has one.</Empty>)}
      </Panel>
      {isNew.value && <NewKey close={(key) => { isNew.value = false; if (key) made.value = key; found.reload(); }} />}
      {made.value && (
        <Dialog title={`The token of ${made.value.name}`} close={() => (made.value = null)}>
          <div class="text">
            <p>It is shown this once. Its holder may do what the key allows.</p>
            <Code label="Token" text={made.value.token} />
          </div>
          <div class="buttons">
            <Button onClick={() => void act(() => navigator.clipboard.writeText(made.value!.token), "Copied.")}>Copy</Button>
            <Button kind="main" onClick={() => (made.value = null)}>Done</Button>
          </div>
        </Dialog>
      )}
    </Page>
  );
}

function NewKey({ close }: { close: (made?: KeyWithToken) => void }) {
  const name = useSignal("");
  const role = useSignal<string>("view");
  const queues = useSignal("*");
  const days = useSignal("");
  const create = async (event: Event) => {
    event.preventDefault();
    let made: KeyWithToken | undefined;
    const body = { name: name.value, grants: [`${role.value}:${queues.value}`], ...(days.value ? { lasts_seconds: Number(days.value) * 86_400 } : {}) };
    if (await act(async () => { made = await post<KeyWithToken>("/v1/keys", body); }, `Key ${name.value} is made.`)) close(made);
  };
  return (
    <Dialog title="New key" close={() => close()}>
      <form onSubmit={create}>
        <div class="form">
          <Field label="Name">{(id) => <input id={id} required pattern="[A-Za-z0-9_.\-]{1,50}" value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />}</Field>
          <Field label="Role">{(id) => <select id={id} value={role.value} onChange={(event) => (role.value = event.currentTarget.value)}>{ROLES.map((one) => <option key={one}>{one}</option>)}</select>}</Field>
          <Field label="Queues" hint="A name, the beginning of names with a *, or *">{(id) => <input id={id} required value={queues.value} onInput={(event) => (queues.value = event.currentTarget.value)} />}</Field>
          <Field label="Expires after (days)" hint="Empty: never">{(id) => <input id={id} type="number" min={0} step="any" value={days.value} onInput={(event) => (days.value = event.currentTarget.value)} />}</Field>
        </div>
        <div class="buttons"><Button onClick={() => close()}>Cancel</Button><Button kind="main" type="submit">Create key</Button></div>
      </form>
    </Dialog>
  );
}
