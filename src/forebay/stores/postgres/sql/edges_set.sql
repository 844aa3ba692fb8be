-- edges_set: how edges stand from now on, which this transaction holds.
update forebay.edges set state = %(state)s::text where ctid = any(%(spots)b::text[]::tid[]);
