-- workers_prune: workers that have been silent for a day.
delete from forebay.workers where beat_at <= %(before)s;
