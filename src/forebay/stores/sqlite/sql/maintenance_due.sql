-- maintenance_due: time at which a maintenance task is due again.
select due_at from forebay_maintenance where name = :name;
