-- queue_add: create a queue. No row means that another transaction has just created it.
insert into forebay.queues (name, state, settings, scoring_version, rescored_to_seq, created_at, updated_at)
values (
  %(name)s, %(state)s, %(settings)s, %(scoring_version)s, %(rescored_to_seq)s, %(created_at)s, %(updated_at)s
)
on conflict (name) do nothing
returning name;
