-- schema_timeouts: lift the timeouts for a migration; only some servers limit a whole transaction.
select set_config(patience.name, patience.value, true)
from (values ('lock_timeout', '60s'), ('statement_timeout', '0'), ('transaction_timeout', '0'))
  as patience(name, value)
where exists (select from pg_settings as known where known.name = patience.name);
