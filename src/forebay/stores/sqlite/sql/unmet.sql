-- unmet: whether an edge blocks a job. By index forebay_edges_unmet and no other: a join may have ten thousand edges, and
-- most of them are met.
select exists (
  select 1 from forebay_edges indexed by forebay_edges_unmet where child = :child and (state = 'open' or state = 'held')
);
