-- unmet: whether an edge blocks a job. Relies on index forebay_edges_unmet.
select exists (select 1 from forebay_edges where child = :child and (state = 'open' or state = 'held'));
