-- aftermath_remove: a line of the list is done.
delete from forebay_aftermaths where number = :number;
