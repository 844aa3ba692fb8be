-- name: limits_exist: whether there are limits, or jobs in the lanes of limits that were removed.
select exists (select 1 from forebay_limits) or exists (select 1 from forebay_limit_lanes);

-- name: limit_lanes_due: lanes of limits of a queue that are due to be rechecked, and whether fairness keys have
-- lanes there.
select scope, exists (select 1 from forebay_limit_fairness_lanes l where l.queue = c.queue and l.scope = c.scope)
from forebay_limit_lanes c
where queue = :queue and recheck_at <= :now
order by recheck_at
limit :limit;

-- name: limit_lanes_next: earliest recheck of a limit lane of a queue.
select min(recheck_at)
from forebay_limit_lanes
where queue = :queue;

-- name: limit_lanes_recheck: make the lanes of these jobs' scopes due: their attempts have ended, so the next claim
-- rechecks them.
update forebay_limit_lanes
set recheck_at = 0
where scope in (select scope from forebay_limit_slots where id in (select value from json_each(:ids)));

-- name: limit_lanes_release: make the lanes of a changed limit due, those of all values of a key: the next claim
-- rechecks them.
update forebay_limit_lanes
set recheck_at = 0
where scope = :scope or (scope > :scope || ':' and scope < :scope || '<');

-- name: limit_lanes_remove: remove a limit lane without jobs.
delete from forebay_limit_lanes
where queue = :queue and scope = :scope;

-- name: limit_lanes_save: save when the lane of a limit with parked jobs is to be rechecked.
insert into forebay_limit_lanes (queue, scope, recheck_at)
values (:queue, :scope, :recheck_at)
on conflict (queue, scope) do update set recheck_at = excluded.recheck_at;

-- name: limit_slots_count: number of running jobs in each of these scopes whose lease has not ended, and the
-- earliest end; no row for a scope without any.
-- Cost: with a row for each scope it took 1.2 us a job more.
select p.scope, count(*), min(j.lease_expires_at)
from json_each(:scopes) s
cross join forebay_limit_slots p on p.scope = s.value
cross join forebay_jobs j on j.seq = p.seq and j.state = 'running' and j.lease_expires_at > :now
group by p.scope;

-- name: limit_slots_prune: remove slots of jobs that ended without a settlement.
delete from forebay_limit_slots
where not exists (select 1 from forebay_jobs j where j.seq = forebay_limit_slots.seq and j.state = 'running');

-- name: limit_slots_release: release the slots of these jobs.
delete from forebay_limit_slots
where id in (select value from json_each(:ids));

-- name: limit_slots_take: add slots of running jobs.
insert or ignore into forebay_limit_slots (scope, seq, id)
values
(?, ?, ?)
;

-- name: limit_usages: all limits, with their token buckets and their running jobs whose lease has not ended.
-- Cost: few jobs run, and only running jobs have slots, so nothing here grows with waiting or final jobs.
select l.scope, l.concurrency, l.rate, l.per_ms, l.burst, l.token_parts, l.refilled_at,
  case
    when l.scope = 'global' or l.scope like 'queue:%' then (
      select count(*)
      from forebay_jobs j
      where j.state = 'running' and j.lease_expires_at > :now
        and (l.scope = 'global' or j.queue = substr(l.scope, 7))
    )
    -- For a key the slots of all its values, which follow a colon. The character after the colon has the number 59.
    else (
      select count(*)
      from forebay_limit_slots p
      cross join forebay_jobs j on j.seq = p.seq and j.state = 'running' and j.lease_expires_at > :now
      where p.scope >= case when l.scope like 'key:%' then l.scope || ':' else l.scope end
        and p.scope <= case when l.scope like 'key:%' then l.scope || char(59) else l.scope end
    )
  end
from forebay_limits l
order by l.scope;

-- name: rate_bucket_save: save the token bucket of a key.
insert into forebay_rate_buckets (scope, token_parts, refilled_at)
values (:scope, :token_parts, :refilled_at)
on conflict (scope) do update set token_parts = excluded.token_parts, refilled_at = excluded.refilled_at;

-- name: rate_buckets: token buckets of keys, by scope of one value; no row for an unused one.
select b.scope, b.token_parts, b.refilled_at
from json_each(:scopes) s
cross join forebay_rate_buckets b on b.scope = s.value;

-- name: rate_buckets_convert: convert the token buckets of a limit by key to another rate; what is left for each
-- value stays left.
-- Whole tokens and the rest of one are converted separately: a product of all parts may exceed 64 bits. A
-- negative quotient is cut off towards zero, so one part more is owed.
update forebay_rate_buckets
set token_parts = (
      select min(
        :full,
        b.filled / :old_per_ms * :per_ms + b.filled % :old_per_ms * :per_ms / :old_per_ms
          - (b.filled % :old_per_ms * :per_ms % :old_per_ms < 0)
      )
      from (select min(:old_full, token_parts + max(0, :now - refilled_at) * :old_rate) as filled) as b
    ),
    refilled_at = :now
where scope > :scope || ':' and scope < :scope || '<';

-- name: rate_buckets_prune: remove unused token buckets: not used for twice the time that they take to fill, and
-- full again after jobs that cost more than there was.
delete from forebay_rate_buckets
where exists (
  select 1
  from forebay_limits l
  where l.scope = substr(forebay_rate_buckets.scope, 1, 3 + instr(substr(forebay_rate_buckets.scope, 5), ':'))
    and forebay_rate_buckets.refilled_at <= :now - 2 * coalesce(l.burst, 2 * l.rate) * l.per_ms / l.rate
    and forebay_rate_buckets.token_parts + (:now - forebay_rate_buckets.refilled_at) * l.rate >= coalesce(l.burst, 2 * l.rate) * l.per_ms
);

-- name: rates_prune: remove token buckets of rates of new jobs that were not used since :before: they are full.
delete from forebay_rate_buckets
where refilled_at <= :before
  and (scope like 'client:%' or scope like 'enqueue:%');
