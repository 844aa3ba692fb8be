-- sequence_leave: remove a job from its sequence.
delete from forebay_sequences where name = :name and position = :position;
