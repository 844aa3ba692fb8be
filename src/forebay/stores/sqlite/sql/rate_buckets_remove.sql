-- rate_buckets_remove: reset a limit by key for each value: a missing bucket is full. Index: primary key, one
-- prefix range.
delete from forebay_rate_buckets
where scope > :scope || ':' and scope < :scope || '<';
