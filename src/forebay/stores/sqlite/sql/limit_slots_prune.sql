-- limit_slots_prune: remove slots of jobs that ended without a settlement.
delete from forebay_limit_slots
where not exists (select 1 from forebay_jobs j where j.seq = forebay_limit_slots.seq and j.state = 'running');
