-- limit_fairness_unpark: jobs that this transaction has locked leave their lanes and wait for the turns of their shares again.
-- The share stands behind the tab in the name of a lane's gate.
update forebay.side_lanes
set lane = 'fair:' || split_part(lane, E'\t', 2)
where ctid = any(%(ctids)b::text[]::tid[])
returning id;
