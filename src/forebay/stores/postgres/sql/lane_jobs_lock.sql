-- lane_jobs_lock: lock a job in a side lane; no row if another transaction holds it.
select 1 from forebay.side_lanes where id = %(id)s for update skip locked;
