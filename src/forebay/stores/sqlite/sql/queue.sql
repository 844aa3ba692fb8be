-- queue: one queue by name.
select name, state, settings, scoring_version, rescored_to_seq, created_at, updated_at
from forebay_queues
where name = :name;
