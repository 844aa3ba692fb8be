-- sequences_assign: append jobs without a position to their sequences, in the order given; answers them.
update forebay.sequences t
set position = array_position(%(ids)b::text[], t.job_id) + coalesce((
    select s.position
    from forebay.sequences s
    where s.name = t.name and s.position is not null
    order by s.position desc
    limit 1
  ), 0)
where t.job_id = any(%(ids)b::text[]) and t.position is null
returning t.job_id;
