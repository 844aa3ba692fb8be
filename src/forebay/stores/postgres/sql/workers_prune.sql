-- workers_prune: workers that have been silent for a day.
delete from forebay.workers where heartbeat_at <= %(before)s;
