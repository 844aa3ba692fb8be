-- sequences_add: jobs come last in their sequences, in the order given; one whose end was not heard of there keeps its
-- place. The last number by its index: `max` may read all of a sequence. The offset keeps the other look from becoming a
-- join with all of them, or a walk through the sequence.
insert into forebay.sequences (name, number, id)
select n.name, n.place + coalesce((
    select s.number from forebay.sequences s where s.name = n.name and s.number is not null order by s.number desc limit 1
  ), 0), n.id
from unnest(%(names)b::text[], %(ids)b::text[]) with ordinality as n (name, id, place)
where not exists (
  select 1
  from (select name from forebay.sequences where id = n.id offset 0) as s
  where s.name = n.name
);
