-- edges_renamed: a new job gets the id of one that is gone, and that had completed unless the list says otherwise: the edges
-- that led from that one are met, whatever becomes of this one.
update forebay_edges
set state = 'met'
where parent = :parent
  and state = 'open'
  and not exists (select 1 from forebay_aftermaths where forebay_aftermaths.parent = :parent);
