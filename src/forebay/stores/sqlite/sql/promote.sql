-- promote: make one due job pending.
-- Guarantees: only a scheduled or retrying job that is due.
update forebay_jobs
set state = 'pending',
    rank = :rank,
    age_capped = :age_capped,
    rescore_at = :rescore_at,
    updated_at = max(:now, run_at + 1) -- `promoted_at` in domain/settlement.py has the reason
where seq = :seq
  and (state = 'scheduled' or state = 'retrying')
  and run_at <= :now;
