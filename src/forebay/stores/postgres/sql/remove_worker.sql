-- remove_worker: delete a worker that has stopped.
delete from forebay.workers where id = %(id)s;
