-- snapshot: the MVCC snapshot just before a query, and the own transaction. It is sent right before `candidates`: a row
-- that arrives between the two is read twice, and none is missed.
select pg_current_snapshot()::text, pg_current_xact_id_if_assigned()::text;
