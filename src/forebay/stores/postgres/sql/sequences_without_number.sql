-- sequences_without_number: in which sequences jobs stand that have no number yet. Relies on index sequences_id.
select distinct name from forebay.sequences where id = any(%(ids)b::text[]) and number is null;
