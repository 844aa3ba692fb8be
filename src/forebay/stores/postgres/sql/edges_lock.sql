-- edges_lock: the edges to a job's parents, held, so that nobody settles one of them before the transaction ends.
select number, state from forebay.edges where child = %(child)s order by number for update;
