-- edges_set: set the state of edges that this transaction has locked.
update forebay.dependencies set state = %(state)s::text where ctid = any(%(ctids)b::text[]::tid[]);
