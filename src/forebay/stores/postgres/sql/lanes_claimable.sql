-- lanes_claimable: lanes of a queue that have jobs and that some worker accepts, by one probe for each lane and one
-- more. Limit lanes sort before all of these and are skipped.
-- Index: side_lanes_order (queue, lane, ...).
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
