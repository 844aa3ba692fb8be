-- expired: waiting jobs past their `expires_at`, earliest first.
-- Index: forebay_jobs_expires (expires_at).
select seq, id
from forebay_jobs
where expires_at is not null
  and state <> 'running'
  and expires_at <= :now
order by expires_at, seq
limit :limit;
