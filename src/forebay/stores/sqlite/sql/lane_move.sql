-- lane_move: jobs of a lane were brought back.
update forebay_lanes
set turn = turn + :by
where queue = :queue and scope = :scope and share = :share;
