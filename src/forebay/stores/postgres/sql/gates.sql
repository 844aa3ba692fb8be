-- gates: behind which gates of a queue jobs wait that somebody can pass, by one probe for each of them and one more.
-- Those of limits come before all others, and are stepped over.
-- Relies on index gated_order (queue, gate, ...).
with recursive closed (gate) as (
  (select gate from forebay.gated where queue = %(queue)s and gate > 'l~' order by gate limit 1)
  union all
  select (
    select g.gate
    from forebay.gated g
    where g.queue = %(queue)s and g.gate > closed.gate
    order by g.gate
    limit 1
  )
  from closed
  where closed.gate is not null
)
select gate from closed where gate is not null limit %(limit)s;
