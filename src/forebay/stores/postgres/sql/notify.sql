-- notify: tell listeners, with the commit, that it may be worth to look.
select pg_notify(%(channel)s, '');
