-- rate_buckets_remove: a limit by key begins anew for each value. Relies on the primary key: all of them begin alike.
delete from forebay_rate_buckets
where scope > :scope || ':' and scope < :scope || '<';
