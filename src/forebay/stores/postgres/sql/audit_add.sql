-- audit_add: one action of an operator, with the next number of the series that events have, too.
insert into forebay.audit (kind, occurred_at, job_id, queue, attempt, actor, detail, changes)
values (
  %(kind)s::text, %(occurred_at)s, %(job_id)s::text, %(queue)s::text, %(attempt)s::bigint, %(actor)s::text, %(detail)s::text,
  %(changes)s::text
);
