-- workers_prune: delete workers without a heartbeat for a day.
delete from forebay.workers where heartbeat_at <= %(before)s;
