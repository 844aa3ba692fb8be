-- limit_fairness_unpark: move jobs that this transaction has locked from behind a limit into the lanes of their
-- fairness keys. The key stands behind the tab in the name of the limit lane.
update forebay.side_lanes
set lane = 'fairness:' || split_part(lane, E'\t', 2)
where ctid = any(%(ctids)b::text[]::tid[])
returning id;
