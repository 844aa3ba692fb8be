-- name: audit: entries of the audit log and events that are no actions, newest first. Both share one series of ids.
-- Cost: each part has its own limit; otherwise the planner would read both to their ends and sort them.
(
  select id, kind, occurred_at, job_id, queue, attempt, actor, detail, changes
  from forebay.audit
  where id < coalesce(%(after)s::bigint, 9223372036854775807)
  order by id desc
  limit %(limit)s
)
union all
(
  select id, kind, occurred_at, job_id, queue, attempt, actor, detail, changes
  from forebay.events
  where id < coalesce(%(after)s::bigint, 9223372036854775807)
    and kind <> all(array(select json_array_elements_text(%(actions)s::text::json)))
  order by id desc
  limit %(limit)s
)
order by id desc
limit %(limit)s;

-- name: audit_add: store one action of an operator, with the next id of the series that events share.
insert into forebay.audit (kind, occurred_at, job_id, queue, attempt, actor, detail, changes)
values (
  %(kind)s::text, %(occurred_at)s, %(job_id)s::text, %(queue)s::text, %(attempt)s::bigint,
  %(actor)s::text, %(detail)s::text, %(changes)s::text
);

-- name: audit_lock: take the lock of the chain until the transaction ends, or answer false: another transaction is
-- appending.
select pg_try_advisory_xact_lock(hashtext('forebay.audit'));
