-- unpark: take jobs that this transaction has locked from behind their gates.
delete from forebay.side_lanes where ctid = any(%(ctids)b::text[]::tid[]);
