-- ungate: take jobs that this transaction has locked from behind their gates.
delete from forebay.gated where ctid = any(%(spots)b::text[]::tid[]);
