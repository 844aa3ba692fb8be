-- shares: those of a queue that have jobs waiting, the next first. Relies on index forebay_shares_turn.
select share, turn
from forebay_shares
where queue = :queue
order by turn, share
limit :limit;
