-- shares_prune: forget shares of these queues that have nothing to run, and what says more than once that jobs of a share
-- have come. Under the lock of their shares, and in a later statement: a claim that goes by a row which is deleted here
-- meanwhile would leave a job without any.
with again as (
  delete from forebay.shares s
  where queue = any(%(queues)b::text[])
    and turn is null
    and exists (
      select 1 from forebay.shares o where o.queue = s.queue and o.share = s.share and o.turn is null and o.ctid < s.ctid
    )
)
delete from forebay.shares s
where queue = any(%(queues)b::text[])
  and turn is not null
  and not exists (select 1 from forebay.gated where queue = s.queue and gate = 'fair:' || s.share);
