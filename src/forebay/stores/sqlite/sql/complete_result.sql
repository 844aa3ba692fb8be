-- complete_result: store the result of a job that was just copied, where it differs from the result of the
-- others.
update forebay_finished
set result = :result
where seq = :seq;
