-- aftermaths_remove: the oldest lines of the list are done.
delete from forebay_aftermaths where number <= :number;
