-- metrics_last: when the latest row of one tier starts.
select max(starts_at) from forebay.metrics where resolution_ms = %(resolution_ms)s;
