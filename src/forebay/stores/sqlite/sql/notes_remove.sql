-- notes_remove: the notes of jobs that are forgotten (:seqs is a JSON array) go with them.
delete from forebay_notes where seq in (select value from json_each(:seqs));
