-- prune_dead: delete dead jobs of a queue past their retention, oldest first.
-- Index: dead_queue (queue, finished_at, seq), from the low-water mark on.
delete from forebay.dead
where id = any(array(
    select id
    from forebay.dead
    where queue = %(queue)s and finished_at >= %(since)s and finished_at <= %(before)s
    order by finished_at, seq
    limit %(limit)s
    for update skip locked
  ))
returning seq, id, queue, task, state, created_at, finished_at, started_at, attempt, failures, reason,
  substring(result from 1 for 800);
