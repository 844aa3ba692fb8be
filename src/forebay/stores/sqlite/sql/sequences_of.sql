-- sequences_of: where jobs stand in their sequences. Relies on index forebay_sequences_id.
select job_id, name, position from forebay_sequences where job_id in (select value from json_each(:ids)) order by name, position;
