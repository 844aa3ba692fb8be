-- lanes_move: jobs of these lanes were brought back.
-- Locks: the caller holds the lock of the queue's shares.
update forebay.lanes l
set turn = l.turn + m.by
from unnest(%(shares)b::text[], %(by)b::bigint[]) as m (share, by)
where l.queue = %(queue)s and l.scope = %(scope)s and l.share = m.share;
