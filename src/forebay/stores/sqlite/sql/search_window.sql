-- search_window: seq at which one scan of a search ends, however few rows match, and when that job was
-- created.
select seq, created_at
from forebay_all_jobs
where instr(:locations, location) > 0
  and seq < coalesce(:after, 9223372036854775807)
order by seq desc
limit 1 offset :rows;
