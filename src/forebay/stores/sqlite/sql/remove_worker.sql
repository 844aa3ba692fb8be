-- remove_worker: remove a worker that has stopped normally.
delete from forebay_workers where id = :id;
