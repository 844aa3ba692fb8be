-- remove_worker: a worker has ended in order.
delete from forebay_workers where id = :id;
