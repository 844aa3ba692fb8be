-- edges_mark_met: mark the edges from old jobs whose ids new jobs get. The old jobs had completed, since the outbox has
-- no entry for them, so their edges are met whatever happens to the new jobs.
update forebay.dependencies
set state = 'met'
where parent_id = any(%(ids)b::text[]) and state = 'open';
