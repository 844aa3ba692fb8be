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

-- name: audit_prune: delete the oldest entries of the chain up to the last one past its retention, at most `limit`.
-- Guarantees: that last one stays as the anchor, since it carries the hash that the next entry names. Entries outside
-- the chain stay.
delete from forebay.audit
where position < coalesce(
    (
      select position
      from forebay.audit
      where position is not null
        and occurred_at > %(before)s
      order by position
      limit 1
    ),
    (select max(position) + 1 from forebay.audit)
  ) - 1
  and position < %(limit)s + (select min(position) from forebay.audit);
