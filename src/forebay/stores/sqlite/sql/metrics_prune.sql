-- metrics_prune: the oldest rows of one tier, up to the start at which there are :limit of them.
delete from forebay_metrics
where tier = :tier
  and start < :before
  and start <= coalesce(
    (select start from forebay_metrics where tier = :tier order by start limit 1 offset :limit - 1),
    :before
  );
