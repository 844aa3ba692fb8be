-- notify: wake listeners with the commit.
select pg_notify(%(channel)s, '');
