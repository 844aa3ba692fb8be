-- audit_chain: entries of the chain behind a position.
select position, previous, hash, id, kind, occurred_at, job_id, queue, attempt, actor, detail, changes
from forebay.audit
where position > %(after)s
order by position
limit %(limit)s;
