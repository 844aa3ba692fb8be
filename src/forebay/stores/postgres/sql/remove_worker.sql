-- remove_worker: a worker has ended in order.
delete from forebay.workers where id = %(id)s;
