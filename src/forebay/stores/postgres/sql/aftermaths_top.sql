-- aftermaths_top: the last number that was given to a line of the list.
select last_value from forebay.aftermaths_number_seq;
