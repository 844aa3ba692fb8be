-- vitals: how many clients are connected to the server, and how many it lets in that are not superusers.
-- Reads no table of ours; everybody may count the sessions of others, though not see what they do.
select (select count(*) from pg_stat_activity where backend_type = 'client backend')::int,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int;
