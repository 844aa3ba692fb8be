-- heartbeat: record that a worker is alive. The start of its first heartbeat stays.
insert into forebay_workers (id, host, pid, queues, state, started_at, heartbeat_at, details)
values (:id, :host, :pid, :queues, :state, :started_at, :now, :details)
on conflict (id) do update
set host = excluded.host,
    pid = excluded.pid,
    queues = excluded.queues,
    state = excluded.state,
    heartbeat_at = excluded.heartbeat_at,
    details = excluded.details;
