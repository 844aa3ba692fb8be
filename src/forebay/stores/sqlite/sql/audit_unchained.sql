-- audit_unchained: committed lines outside the chain, lowest id first. A transaction may commit a lower id
-- later; the next call finds it.
-- Index: the unique one on positions.
select id, kind, occurred_at, job_id, queue, attempt, actor, detail, changes
from forebay_audit
where position is null
order by id
limit :limit;
