-- metrics_last: when the latest row of one tier starts.
select max(start) from forebay_metrics where tier = :tier;
