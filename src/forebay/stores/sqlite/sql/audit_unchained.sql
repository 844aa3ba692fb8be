-- audit_unchained: lines that are committed and not part of the chain, lowest number first. A transaction may commit a lower
-- number after this look; the next look finds it. Index: the unique one on positions.
select id, kind, occurred_at, job_id, queue, attempt, actor, detail, changes
from forebay_audit
where position is null
order by id
limit :limit;
