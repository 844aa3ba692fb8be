-- edges_mark_met: mark the edges from a removed job as met, before a new job takes its id. The outbox has no
-- entry of it, so it had completed.
update forebay_dependencies
set state = 'met'
where parent_id = :parent_id
  and state = 'open';
