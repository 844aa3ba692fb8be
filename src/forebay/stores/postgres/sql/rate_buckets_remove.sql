-- rate_buckets_remove: a limit by key begins anew for each value.
delete from forebay.rate_buckets
where scope > %(scope)s || ':' and scope < %(scope)s || '<';
