-- sequences_of: where jobs stand in their sequences. Relies on index forebay_sequences_id.
select id, name, number from forebay_sequences where id in (select value from json_each(:ids)) order by name, number;
