-- edges_renamed: a new job gets the id of one that is gone, and that had completed, as the list has nothing about it: the
-- edges that led from that one are met, whatever becomes of this one.
update forebay_edges
set state = 'met'
where parent = :parent
  and state = 'open';
