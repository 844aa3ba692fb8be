-- partitions: partitions of finished jobs.
select c.relname::text
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'forebay.finished'::regclass
order by c.relname;
