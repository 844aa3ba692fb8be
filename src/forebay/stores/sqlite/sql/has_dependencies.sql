-- has_dependencies: whether any job depends on another one, by an edge or in a sequence; in most stores none
-- does.
select exists (select 1 from forebay_dependencies) or exists (select 1 from forebay_sequences);
