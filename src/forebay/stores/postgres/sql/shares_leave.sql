-- shares_leave: forget those of these shares that have nothing to run. If somebody has just inserted a job of one and we
-- do not see it yet, a row without a turn comes with it. Their lanes behind limits keep their turns.
-- Relies on indexes gated_order and lanes_share.
with gone as (
  delete from forebay.shares s
  where s.queue = %(queue)s
    and s.share = any(%(shares)b::text[])
    and s.turn is not null
    and not exists (select 1 from forebay.gated where queue = s.queue and gate = 'fair:' || s.share offset 0)
  returning s.queue, s.share, s.turn
)
update forebay.lanes l
set resume = g.turn
from gone g
where l.queue = g.queue and l.share = g.share;
