-- edges_met: these jobs have completed for some that wait for them; which these are. Relies on index
-- forebay_edges_parent.
update forebay_edges
set state = 'met'
where (child, number) in (
  select child, number
  from forebay_edges
  where parent in (select value from json_each(:parents)) and state = 'open'
  limit :limit
)
returning child;
