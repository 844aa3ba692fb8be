-- audit_unchained: lines that are committed and not part of the chain, lowest number first. A transaction may commit a lower
-- number after this look; the next look finds it. Index: the unique one on positions.
select number, kind, at, job_id, queue, attempt, actor, detail, changes
from forebay_audit
where position is null
order by number
limit :limit;
