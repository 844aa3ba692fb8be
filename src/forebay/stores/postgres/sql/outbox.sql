-- name: outbox_add: add outbox entries in the order given.
insert into forebay.dependency_outbox (job_id, event)
select n.job_id, n.event
from unnest(%(job_ids)b::text[], %(events)b::text[]) with ordinality as n (job_id, event, position)
order by n.position
returning id;

-- name: outbox_add_if_affected: add outbox entries for jobs that have edges which the event affects, or will have once
-- earlier entries are processed; for deleted jobs also if they are in a sequence.
-- Index: dependencies_parent, dependency_outbox_job and sequences_job; one probe per job, see `delayed_take_due`.
insert into forebay.dependency_outbox (job_id, event)
select n.job_id, %(event)s::text
from unnest(%(job_ids)b::text[]) with ordinality as n (job_id, position)
where (
    select position
    from forebay.dependencies
    where parent_id = n.job_id and state = any(%(states)b::text[])
    order by parent_id, child_id, position
    limit 1
  ) is not null
  or (select id from forebay.dependency_outbox where job_id = n.job_id order by job_id, id limit 1) is not null
  or (%(event)s::text = 'deleted' and exists (select 1 from forebay.sequences where job_id = n.job_id offset 0))
order by n.position
returning id;

-- name: outbox_for_jobs: outbox entries of jobs with their cursors, oldest first.
-- Index: dependency_outbox_job, in its order; one probe per job, see `delayed_take_due`.
select a.id, a.job_id, a.cursor_child_id, a.cursor_position
from unnest(%(job_ids)b::text[]) as p (job_id)
cross join lateral (
  select id, job_id, cursor_child_id, cursor_position
  from forebay.dependency_outbox
  where job_id = p.job_id
  order by job_id, id
  offset 0
) as a
order by a.id;

-- name: outbox_lock: `outbox_for_jobs`, locked. A transaction that worked on such an entry has ended when this answers,
-- and what it left is final: other transactions pass over locked entries.
select a.id, a.job_id, a.cursor_child_id, a.cursor_position
from unnest(%(job_ids)b::text[]) as p (job_id)
cross join lateral (
  select id, job_id, cursor_child_id, cursor_position
  from forebay.dependency_outbox
  where job_id = p.job_id
  order by job_id, id
  for update
) as a
order by a.id;

-- name: outbox_lock_ids: lock outbox entries by id; as `outbox_lock_next` otherwise.
select a.id, a.job_id, a.event, a.cursor_child_id, a.cursor_position,
  (select job_id from forebay.sequences where job_id = a.job_id limit 1) is not null
from unnest(%(ids)b::bigint[]) as w (id)
cross join lateral (
  select id, job_id, event, cursor_child_id, cursor_position
  from forebay.dependency_outbox
  where id = w.id
  for update skip locked
) as a
where not exists (select 1 from forebay.dependency_outbox o where o.job_id = a.job_id and o.id < a.id)
limit %(limit)s;

-- name: outbox_lock_next: lock the oldest outbox entries that no other transaction has locked. The last column says
-- whether the job is in a sequence: it is there before it can end.
-- Guarantees: the events of one job are processed in their order: an entry waits for older ones of its job, which stay
-- until their transaction has processed them.
-- New jobs that wait for one of the busy parents are left out: a caller transaction completes the parent, and they
-- would hide the entries behind them.
-- Index: primary key, from the low-water mark on; primary key of `dependencies`, only if there are busy parents.
select id, job_id, event, cursor_child_id, cursor_position,
  (select job_id from forebay.sequences where job_id = a.job_id limit 1) is not null
from forebay.dependency_outbox a
where id >= %(since)s
  and not exists (select 1 from forebay.dependency_outbox o where o.job_id = a.job_id and o.id < a.id)
  and (
    cardinality(%(busy)b::text[]) = 0
    or event <> 'check'
    or not exists (
      select 1
      from forebay.dependencies e
      where e.child_id = a.job_id and e.parent_id = any(%(busy)b::text[]) and e.state = 'unchecked'
      offset 0
    )
  )
order by id
limit %(limit)s
for update skip locked;

-- name: outbox_remove_all: delete processed outbox entries.
delete from forebay.dependency_outbox a
where id = any(%(ids)b::bigint[])
  and not exists (
    select 1 from forebay.dependencies e where e.parent_id = a.job_id and e.state = any(%(states)b::text[])
  );

-- name: outbox_scan_state: the lowest outbox entry and the last id that was given out. Then the marked id, if all
-- transactions that were writing then have ended, so that this snapshot sees every entry below the mark; and whether
-- some have not. A mark of another server counts as none.
-- Index: primary key, from the low-water mark on.
select
  (select id from forebay.dependency_outbox where id >= %(since)s order by id limit 1),
  coalesce(pg_sequence_last_value('forebay.dependency_outbox_id_seq'::regclass), 0),
  max(d.scan_position) filter (where d.due_at <= s.oldest),
  coalesce(bool_or(d.due_at > s.oldest and d.due_at <= s.coming), false)
from (
  select
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint as oldest,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint as coming
) as s
left join forebay.maintenance d on d.name = 'scan mark of outbox';

-- name: deleted_among: of these jobs without a row, those that had not completed when they were deleted.
-- Guarantees: it runs after the search for the rows, so it sees the audit entry of the deletion, and the outbox entry
-- if an edge was known then.
-- Index: audit_job and dependency_outbox_job; one probe per job, see `delayed_take_due`.
select p.job_id
from unnest(%(job_ids)b::text[]) as p (job_id)
where exists (
    select 1 from forebay.audit where job_id = p.job_id and kind = 'deleted' and detail <> 'completed' offset 0
  )
  or exists (
    select 1 from forebay.dependency_outbox where job_id = p.job_id and event = 'deleted' offset 0
  );
