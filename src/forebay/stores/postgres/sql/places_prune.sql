-- places_prune: forget places of jobs that ended without a settlement.
delete from forebay.places p
where not exists (select 1 from forebay.leases l where l.id = p.id);
