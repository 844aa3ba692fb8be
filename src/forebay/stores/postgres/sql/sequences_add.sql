-- sequences_add: append jobs to their sequences, in the order given. A job whose end is not propagated yet keeps its
-- position.
-- Cost: the last position is probed by its index, since `max` may read all of a sequence. The offset keeps the other
-- probe from becoming a join, or a walk through the sequence.
insert into forebay.sequences (name, position, job_id)
select n.name, n.nth + coalesce((
    select s.position
    from forebay.sequences s
    where s.name = n.name and s.position is not null
    order by s.position desc
    limit 1
  ), 0), n.job_id
from unnest(%(names)b::text[], %(ids)b::text[]) with ordinality as n (name, job_id, nth)
where not exists (
  select 1
  from (select name from forebay.sequences where job_id = n.job_id offset 0) as s
  where s.name = n.name
);
