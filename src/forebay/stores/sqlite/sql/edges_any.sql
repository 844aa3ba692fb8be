-- edges_any: whether any job waits for another one, by an edge or in a sequence; in most stores none does.
select exists (select 1 from forebay_edges) or exists (select 1 from forebay_sequences);
