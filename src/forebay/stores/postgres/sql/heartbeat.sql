-- heartbeat: store the report of a worker. The start of its first report stays.
insert into forebay.workers (id, host, pid, queues, state, started_at, heartbeat_at, details)
values (%(id)s, %(host)s, %(pid)s, %(queues)s, %(state)s, %(started_at)s, %(now)s, %(details)s)
on conflict (id) do update
set host = excluded.host,
    pid = excluded.pid,
    queues = excluded.queues,
    state = excluded.state,
    heartbeat_at = excluded.heartbeat_at,
    details = excluded.details;
