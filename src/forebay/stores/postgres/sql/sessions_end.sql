-- sessions_end: end the sessions of this store that this user may end, except this one. Programs connect again, and
-- look at the schema then. Waits up to a second for each: when this is answered, they have ended.
select count(pg_terminate_backend(pid, 1000))
from pg_stat_activity
where datname = current_database()
  and usename = current_user
  and application_name = %(name)s
  and pid <> pg_backend_pid();
