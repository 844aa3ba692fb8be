-- audit_chain: lines of the chain after a position.
select position, previous, hash, id, kind, occurred_at, job_id, queue, attempt, actor, detail, changes
from forebay_audit
where position > :after
order by position
limit :limit;
