-- sessions_end: end the other sessions of this store that this user may end. Programs connect again and check the
-- schema then. It waits up to a second for each, so they have ended when this answers.
select count(pg_terminate_backend(pid, 1000))
from pg_stat_activity
where datname = current_database()
  and usename = current_user
  and application_name = %(name)s
  and pid <> pg_backend_pid();
