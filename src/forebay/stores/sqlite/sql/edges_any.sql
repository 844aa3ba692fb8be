-- edges_any: whether there are edges at all; most stores have none.
select exists (select 1 from forebay_edges);
