-- snapshot: which transactions can be seen just before a look, and our own. Sent right before `heads`: what comes in
-- between the two is looked at twice, and nothing is missed.
select pg_current_snapshot()::text, pg_current_xact_id_if_assigned()::text;
