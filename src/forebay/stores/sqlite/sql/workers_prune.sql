-- workers_prune: workers that have been silent for a day.
delete from forebay_workers where heartbeat_at <= :before;
