-- metrics_last: when the latest row of one tier starts.
select max(start) from forebay.metrics where tier = %(tier)s;
