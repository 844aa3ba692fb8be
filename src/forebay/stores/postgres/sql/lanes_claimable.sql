-- lanes_claimable: behind which gates of a queue jobs wait that somebody can pass, by one probe for each of them and one more.
-- Those of limits come before all others, and are stepped over.
-- Relies on index gated_order (queue, gate, ...).
with recursive found (lane) as (
  (select lane from forebay.side_lanes where queue = %(queue)s and lane > 'l~' order by lane limit 1)
  union all
  select (
    select g.lane
    from forebay.side_lanes g
    where g.queue = %(queue)s and g.lane > found.lane
    order by g.lane
    limit 1
  )
  from found
  where found.lane is not null
)
select lane from found where lane is not null limit %(limit)s;
