-- edges_set: how edges stand from now on, which this transaction holds.
update forebay.dependencies set state = %(state)s::text where ctid = any(%(ctids)b::text[]::tid[]);
