-- lanes: shares with jobs behind a limit, the next first. Relies on index forebay_lanes_turn.
select share, turn
from forebay_lanes
where queue = :queue and scope = :scope
order by turn, share
limit :limit;
