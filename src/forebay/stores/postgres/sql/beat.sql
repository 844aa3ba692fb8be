-- beat: a worker is alive. The start of its first beat stays.
insert into forebay.workers (id, host, pid, queues, state, started_at, beat_at, said)
values (%(id)s, %(host)s, %(pid)s, %(queues)s, %(state)s, %(started_at)s, %(now)s, %(said)s)
on conflict (id) do update
set host = excluded.host,
    pid = excluded.pid,
    queues = excluded.queues,
    state = excluded.state,
    beat_at = excluded.beat_at,
    said = excluded.said;
