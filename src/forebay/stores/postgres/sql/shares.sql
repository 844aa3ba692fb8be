-- shares: those of a queue that have jobs waiting, the next first. Relies on index shares_turn.
select share, turn
from forebay.shares
where queue = %(queue)s and turn is not null
order by turn, share
limit %(limit)s;
