-- sequences_of: in which sequences jobs stand. Relies on index sequences_id.
select distinct name from forebay.sequences where id = any(%(ids)b::text[]);
