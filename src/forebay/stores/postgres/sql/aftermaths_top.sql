-- aftermaths_top: the last number that was given to a line of the list.
select coalesce(pg_sequence_last_value('forebay.aftermaths_number_seq'::regclass), 0);
