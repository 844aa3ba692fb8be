-- sequence_leave: a job is out of its sequence.
delete from forebay_sequences where name = :name and position = :position;
