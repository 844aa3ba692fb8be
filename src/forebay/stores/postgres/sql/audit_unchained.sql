-- audit_unchained: committed entries that are not part of the chain, lowest id first. A transaction may commit a lower
-- id after this query; the next query finds it.
-- Index: audit_unchained.
select id, kind, occurred_at, job_id, queue, attempt, actor, detail, changes
from forebay.audit
where position is null
order by id
limit %(limit)s;
