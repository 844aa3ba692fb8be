-- waiting_remove: delete the narrow row of a job that this transaction has locked; its rank is probed as in
-- `ready_lock`.
with r as (
  delete from forebay.ready
  where ctid = any(array(
    select ctid
    from forebay.ready
    where queue = %(queue)s
      and age_capped = %(age_capped)s
      and (rank, seq) >= (%(rank)s, %(seq)s)
      and (rank, seq) <= (%(rank)s, %(seq)s)
    order by rank, seq
  ))
),
b as (
  delete from forebay.blocked where id = %(id)s
),
g as (
  delete from forebay.side_lanes where id = %(id)s
)
delete from forebay.delayed where id = %(id)s;
