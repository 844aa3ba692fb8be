-- rate_buckets_remove: delete the token buckets of a limit by key; each value starts full.
delete from forebay.rate_buckets
where scope > %(scope)s || ':' and scope < %(scope)s || '<';
