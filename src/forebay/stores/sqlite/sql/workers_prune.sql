-- workers_prune: workers that have been silent for a day.
delete from forebay_workers where beat_at <= :before;
