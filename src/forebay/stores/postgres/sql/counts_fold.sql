-- counts_fold: fold changes into the counters, so that readers add up less. Answers how many changes, and the last id
-- that was given out.
-- Guarantees: one statement deletes a change and counts it. An uncommitted change stays, and a later scan from below
-- the low-water mark finds it.
with removed as (
  delete from forebay.queue_count_deltas
  where ctid = any(array(
    select ctid
    from forebay.queue_count_deltas
    where id >= %(since)s
    order by id
    limit %(limit)s
    for update skip locked
  ))
  returning id, queue, state, jobs
),
folded as (
  insert into forebay.queue_counts as c (queue, state, jobs)
  select queue, state, sum(jobs)
  from removed
  group by queue, state
  order by queue, state
  on conflict (queue, state) do update
  set jobs = c.jobs + excluded.jobs
)
select count(*), pg_sequence_last_value('forebay.queue_count_deltas_id_seq'::regclass) from removed;
