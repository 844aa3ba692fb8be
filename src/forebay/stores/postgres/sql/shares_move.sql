-- shares_move: jobs of these shares were taken.
update forebay.shares s
set turn = s.turn + m.by
from unnest(%(shares)b::text[], %(by)b::bigint[]) as m (share, by)
where s.queue = %(queue)s and s.share = m.share and s.turn is not null;
