-- metrics_last: start of the latest row of one resolution.
select max(starts_at) from forebay.metrics where resolution_ms = %(resolution_ms)s;
