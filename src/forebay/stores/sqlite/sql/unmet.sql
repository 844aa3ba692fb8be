-- unmet: whether an edge blocks a job, or a job before it in its sequence. By index forebay_edges_unmet: a join may have
-- ten thousand edges, and most of them are met.
select exists (
  select 1
  from forebay_edges indexed by forebay_edges_unmet
  where child = :child and (state = 'open' or state = 'held')
) or exists (
  select 1
  from forebay_sequences s
  where s.id = :child and exists (select 1 from forebay_sequences f where f.name = s.name and f.number < s.number)
);
