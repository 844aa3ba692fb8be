-- shares_join: shares of these queues for which jobs have come have something to run, and the rows that say so are taken
-- away. One that had nothing begins a step behind the first; those of another step than the usual one are named.
-- One with lanes behind limits goes on from the turn that they have kept, at most a step from the first
-- (`domain.share.resuming`). `least` and `greatest` leave out what is null.
-- Relies on indexes shares_turn and lanes_share.
with came as (
  delete from forebay.shares where queue = any(%(names)b::text[]) and turn is null returning queue, share
),
new as (
  select distinct queue, share from came
)
insert into forebay.shares (queue, share, turn)
select n.queue, n.share,
  case
    when l.resume is null then coalesce(f.turn, 0) + coalesce(s.step, %(step)s)
    else greatest(f.turn - coalesce(s.step, %(step)s), least(l.resume, f.turn + coalesce(s.step, %(step)s)))
  end
from new n
left join lateral (
  select w.step
  from unnest(%(queues)b::text[], %(shares)b::text[], %(steps)b::bigint[]) as w (queue, share, step)
  where w.queue = n.queue and w.share = n.share
) as s on true
cross join lateral (
  select (
    select turn from forebay.shares where queue = n.queue and turn is not null order by turn limit 1
  ) as turn
) as f
cross join lateral (
  select max(resume) as resume from forebay.lanes where queue = n.queue and share = n.share
) as l
where not exists (
  select 1 from forebay.shares where queue = n.queue and share = n.share and turn is not null
);
