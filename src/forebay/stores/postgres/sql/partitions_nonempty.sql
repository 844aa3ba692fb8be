-- partitions_nonempty: those of some days that have jobs in the default partition.
select day
from unnest(%(days)s::bigint[]) as day
where exists (
  select from forebay.finished_default where finished_at >= day and finished_at < day + %(day_ms)s
);
