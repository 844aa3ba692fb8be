-- shares_prune: forget shares that have nothing to run, of queues that nobody claims from, and what says more than once
-- that jobs of a share have come.
with again as (
  delete from forebay.shares s
  where turn is null
    and exists (
      select 1 from forebay.shares o where o.queue = s.queue and o.share = s.share and o.turn is null and o.ctid < s.ctid
    )
)
delete from forebay.shares s
where turn is not null
  and not exists (select 1 from forebay.gated where queue = s.queue and gate = 'fair:' || s.share);
