-- lanes: shares with jobs behind a limit, the next first. Relies on index lanes_turn.
select share, turn
from forebay.lanes
where queue = %(queue)s and scope = %(scope)s
order by turn, share
limit %(limit)s;
