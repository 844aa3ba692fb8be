/** All queues. */

import { useSignal } from "@preact/signals";
import { may, post } from "../api";
import { length, number } from "../format";
import { isUnserved, queues, workers } from "../live";
import { act, Badge, Button, Dialog, Empty, Field, Page, Panel, QueueLink, StateBar, Table } from "../ui";
import { QueueButtons } from "./queue";

export function Queues() {
  const isNew = useSignal(false);
  const found = queues.value;
  return (
    <Page title="Queues" sub="Jobs by queue and state" actions={may("create_queue") && <Button kind="main" onClick={() => (isNew.value = true)}>New queue</Button>}>
      <Panel>
        {found?.length ? (
          <Table label="Queues" head={["Queue", "State", "Jobs", ">Pending", ">Running", ">Retrying", ">Scheduled", ">Completed", ">Dead", ">Drain time", ""]}>
            {found.map((queue) => (
              <tr key={queue.name}>
                <td><QueueLink name={queue.name} /></td>
                <td>
                  <Badge state={queue.state} />
                  {isUnserved(queue, workers.value) && <Badge state="dead">no worker</Badge>}
                </td>
                <td><StateBar counts={queue.counts} /></td>
                <td class="right">{number(queue.counts.pending)}</td>
                <td class="right">{number(queue.counts.running)}</td>
                <td class="right">{number(queue.counts.retrying)}</td>
                <td class="right">{number(queue.counts.scheduled)}</td>
                <td class="right">{number(queue.counts.completed)}</td>
                <td class={`right ${queue.counts.dead ? "wrong" : ""}`}>{number(queue.counts.dead)}</td>
                <td class="right">{queue.counts.pending ? length(queue.drain_seconds) : "–"}</td>
                <td class="tight"><QueueButtons queue={queue} /></td>
              </tr>
            ))}
          </Table>
        ) : (
          <Empty>{found ? "There are no queues yet: the first job makes one." : "Waiting for the server…"}</Empty>
        )}
      </Panel>
      {isNew.value && <NewQueue close={() => (isNew.value = false)} />}
    </Page>
  );
}

function NewQueue({ close }: { close: () => void }) {
  const name = useSignal("");
  const create = async (event: Event) => {
    event.preventDefault();
    if (await act(() => post("/v1/queues", { name: name.value }), `Queue ${name.value} created.`)) close();
  };
  return (
    <Dialog title="New queue" close={close}>
      <form onSubmit={create}>
        <Field label="Name" hint="1 to 50 letters, digits, _, - or .">
          {(id) => <input id={id} required pattern="[A-Za-z0-9_.\-]{1,50}" value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />}
        </Field>
        <div class="buttons">
          <Button onClick={close}>Cancel</Button>
          <Button kind="main" type="submit">Create queue</Button>
        </div>
      </form>
    </Dialog>
  );
}
