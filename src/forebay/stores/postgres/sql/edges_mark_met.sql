-- edges_mark_met: new jobs get the ids of some that are gone, and that had completed, as the list has nothing about them: the edges
-- that led from those are met, whatever becomes of these.
update forebay.dependencies
set state = 'met'
where parent_id = any(%(ids)b::text[]) and state = 'open';
