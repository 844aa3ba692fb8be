-- places_prune: forget places of jobs that ended without a settlement.
delete from forebay_places
where not exists (select 1 from forebay_jobs j where j.seq = forebay_places.seq and j.state = 'running');
