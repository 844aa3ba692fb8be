-- schema_newest: the number of the last step.
-- Index: primary key, its last entry. Runs after each commit of another connection, so it has to be cheap.
select number from forebay_schema order by number desc limit 1;
