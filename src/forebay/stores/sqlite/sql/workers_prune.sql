-- workers_prune: remove workers without a heartbeat for a day.
delete from forebay_workers where heartbeat_at <= :before;
