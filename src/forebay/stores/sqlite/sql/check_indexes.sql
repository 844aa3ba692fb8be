-- check_indexes: waiting jobs that neither a claim nor `promote` can find, because the index of their order
-- lacks them; `quick_check` does not compare indexes with their tables.
-- Then jobs that were due a minute before the last complete `promote`, and are still delayed.
select id, 'is pending and in no order'
from forebay_jobs not indexed
where state = 'pending'
  and seq not in (select seq from forebay_jobs indexed by forebay_jobs_ready where state = 'pending')
union all
select id, 'waits for its time and is in no order'
from forebay_jobs not indexed
where (state = 'scheduled' or state = 'retrying')
  and seq not in (
    select seq from forebay_jobs indexed by forebay_jobs_delayed where state = 'scheduled' or state = 'retrying'
  )
union all
select id, 'was due and has not been moved'
from forebay_jobs
where (state = 'scheduled' or state = 'retrying')
  and run_at <= (select due_at from forebay_maintenance where name = 'promote') - :late_ms
  -- In a staggered queue due jobs may wait for any time.
  and queue not in (
    select name
    from forebay_queues
    where iif(json_valid(settings), settings, null) ->> 'promote_per_second' is not null
  );
