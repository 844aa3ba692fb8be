-- rank_span: the lowest and the highest rank of the uncapped class of a queue, for an estimate.
select
  (select rank from forebay.ready where queue = %(queue)s and age_capped = false order by rank limit 1),
  (select rank from forebay.ready where queue = %(queue)s and age_capped = false order by rank desc limit 1);
