-- sequences_number: jobs that have no number come last in their sequences, in the order given; which ones.
update forebay.sequences t
set number = array_position(%(ids)b::text[], t.id) + coalesce((
    select s.number from forebay.sequences s where s.name = t.name and s.number is not null order by s.number desc limit 1
  ), 0)
where t.id = any(%(ids)b::text[]) and t.number is null
returning t.id;
