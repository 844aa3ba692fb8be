-- queue: one queue by name.
select name, state, settings, rank_version, reordered_to, created_at, updated_at
from forebay_queues
where name = :name;
