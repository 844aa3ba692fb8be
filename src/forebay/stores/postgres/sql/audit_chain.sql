-- audit_chain: lines of the chain from behind a position on.
select position, previous, hash, id, kind, occurred_at, job_id, queue, attempt, actor, detail, changes
from forebay.audit
where position > %(after)s
order by position
limit %(limit)s;
