-- unpark: delete side-lane rows that this transaction has locked.
delete from forebay.side_lanes where ctid = any(%(ctids)b::text[]::tid[]);
