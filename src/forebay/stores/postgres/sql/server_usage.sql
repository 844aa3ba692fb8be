-- server_usage: how many clients are connected to the server, and how many it lets in that are not superusers.
-- Reads no table of ours. Not from pg_stat_activity: of other roles' sessions a plain role does not even see of
-- which kind they are, and would count its own alone.
select (select sum(numbackends) from pg_stat_database where datid <> 0)::int,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int;
