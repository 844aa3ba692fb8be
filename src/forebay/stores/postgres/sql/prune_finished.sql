-- prune_finished: take finished jobs of a queue past their retention out, oldest first.
-- Relies on index finished_queue (queue, finished_at, seq), from the floor on.
delete from forebay.finished
where id = any(array(
    select id
    from forebay.finished
    where queue = %(queue)s and finished_at >= %(since)s and finished_at <= %(before)s
    order by finished_at, seq
    limit %(limit)s
    for update skip locked
  ))
  and finished_at >= %(since)s
  and finished_at <= %(before)s
returning seq, id, queue, task, state, created_at, finished_at, started_at, attempt, failures, reason,
  substring(result from 1 for 800);
