-- server_usage: how many clients are connected to the server, and how many it accepts that are not superusers.
-- Reads no table of Forebay. Not from pg_stat_activity: a plain role does not see the kind of sessions of other roles,
-- and would count its own only.
select (select sum(numbackends) from pg_stat_database where datid <> 0)::int,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int;
