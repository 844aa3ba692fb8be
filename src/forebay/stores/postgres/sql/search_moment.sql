-- search_moment: the seq up to which jobs were created before a time. Seqs grow with time, so each probe of one job
-- halves the range; the caller allows for clocks that were set.
-- Index: the indexes by seq of the three tables. At the end no job lies between `low` and `high`.
with recursive halves (low, high) as (
  select 0::bigint, (select max(seq) + 1 from forebay.job_index)
  union all
  select
    case when found.created_at >= %(moment)s then low else middle end,
    case when found.created_at >= %(moment)s then found.seq else high end
  from halves
  cross join lateral (select (low + high) / 2 as middle) as m
  left join lateral (
    select seq, created_at
    from forebay.job_index
    where seq > low and seq <= middle
    order by seq desc
    limit 1
  ) as found on true
  where high - low > 1
)
select low from halves order by high - low limit 1;
