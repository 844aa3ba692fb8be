-- beat: a worker is alive. The start of its first beat stays.
insert into forebay_workers (id, host, pid, queues, state, started_at, beat_at, said)
values (:id, :host, :pid, :queues, :state, :started_at, :now, :said)
on conflict (id) do update
set host = excluded.host,
    pid = excluded.pid,
    queues = excluded.queues,
    state = excluded.state,
    beat_at = excluded.beat_at,
    said = excluded.said;
