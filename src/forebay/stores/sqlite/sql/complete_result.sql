-- complete_result: what a job that was just copied has come to, where that is not what the others have.
update forebay_finished
set result = :result
where seq = :seq;
