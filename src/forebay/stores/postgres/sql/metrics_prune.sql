-- metrics_prune: the oldest rows of one tier, up to the start at which there are %(limit)s of them.
delete from forebay.metrics
where tier = %(tier)s
  and start < %(before)s
  and start <= coalesce(
    (select start from forebay.metrics where tier = %(tier)s order by start limit 1 offset %(limit)s::bigint - 1),
    %(before)s
  )
returning 1;
