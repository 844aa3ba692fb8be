-- lanes_leave: forget those of these lanes that have no jobs. Relies on index gated_order.
-- Locks: the caller holds the lock of the queue's shares, so no other transaction puts a job into a lane meanwhile.
delete from forebay.lanes l
where l.queue = %(queue)s
  and l.scope = %(scope)s
  and l.share = any(%(shares)b::text[])
  and not exists (
    select 1 from forebay.gated where queue = l.queue and gate = 'limit:' || l.scope || E'\t' || l.share offset 0
  );
