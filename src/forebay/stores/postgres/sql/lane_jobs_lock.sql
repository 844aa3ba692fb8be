-- lane_jobs_lock: hold a job that waits behind a gate.
select 1 from forebay.side_lanes where id = %(id)s for update skip locked;
