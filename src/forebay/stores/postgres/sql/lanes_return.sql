-- lanes_return: jobs that this transaction has locked leave their lanes and wait for the turns of their shares again.
-- The share stands behind the tab in the name of a lane's gate.
update forebay.gated
set gate = 'fair:' || split_part(gate, E'\t', 2)
where ctid = any(%(spots)b::text[]::tid[])
returning id;
