-- unmet: whether an edge blocks a job. By index forebay_edges_unmet: a join may have ten thousand edges, and most of
-- them are met.
select exists (
  select 1 from forebay_edges where child = :child and state in ('open', 'held')
);
