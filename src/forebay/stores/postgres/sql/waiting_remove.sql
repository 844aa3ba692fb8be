-- waiting_remove: take a job's narrow row out, which this transaction has locked.
with r as (
  delete from forebay.ready
  where queue = %(queue)s and capped = %(capped)s and rank = %(rank)s and seq = %(seq)s
),
g as (
  delete from forebay.gated where id = %(id)s
)
delete from forebay.due where id = %(id)s;
