-- aftermaths_any: whether the list of what the ends of jobs mean for others holds anything, and the last number that was
-- given to a line of it. Relies on the primary key, from the floor on.
select (select number from forebay.aftermaths where number >= %(since)s order by number limit 1) is not null,
  coalesce(pg_sequence_last_value('forebay.aftermaths_number_seq'::regclass), 0);
