-- open_parents: the parents of jobs whose edges are open.
select distinct parent from forebay.edges where child = any(%(children)b::text[]) and state = 'open' order by parent;
