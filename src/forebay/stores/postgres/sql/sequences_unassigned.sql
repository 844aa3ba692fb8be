-- sequences_unassigned: in which sequences jobs stand that have no number yet. Relies on index sequences_id.
select distinct name from forebay.sequences where job_id = any(%(ids)b::text[]) and position is null;
