-- shares_came: which shares of these queues have jobs that nobody has given a turn for.
-- Relies on index shares_turn.
with taken as (
  delete from forebay.shares where queue = any(%(queues)b::text[]) and turn is null returning queue, share
)
select distinct queue, share from taken order by queue, share;
