-- audit_unchained: lines that are committed and not part of the chain, lowest number first. A transaction may commit a lower
-- number after this look; the next look finds it. Index: audit_unchained.
select id, kind, occurred_at, job_id, queue, attempt, actor, detail, changes
from forebay.audit
where position is null
order by id
limit %(limit)s;
