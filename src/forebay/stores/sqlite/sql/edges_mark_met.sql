-- edges_mark_met: a new job gets the id of one that is gone, and that had completed, as the list has nothing about it: the
-- edges that led from that one are met, whatever becomes of this one.
update forebay_dependencies
set state = 'met'
where parent_id = :parent_id
  and state = 'open';
