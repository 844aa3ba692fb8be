-- order_came: the places that this very transaction has put into the order of these queues.
-- Relies on index ready_arrived, for the reason that `heads` gives.
select u.queue, r.rank, r.seq
from unnest(%(queues)b::text[]) as u (queue)
cross join lateral (
  select rank, seq, capped
  from forebay.ready
  where queue = u.queue
    and arrived >= pg_current_xact_id_if_assigned()
    and arrived <= pg_current_xact_id_if_assigned()
  order by arrived
  offset 0
) as r
where not r.capped
order by r.rank, r.seq
limit %(most)s;
