-- audit_add: store one action of an operator, with the next id of the series that events share.
insert into forebay.audit (kind, occurred_at, job_id, queue, attempt, actor, detail, changes)
values (
  %(kind)s::text, %(occurred_at)s, %(job_id)s::text, %(queue)s::text, %(attempt)s::bigint,
  %(actor)s::text, %(detail)s::text, %(changes)s::text
);
