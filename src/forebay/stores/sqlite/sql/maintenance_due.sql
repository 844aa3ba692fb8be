-- maintenance_due: when a duty is due again.
select due_at from forebay_maintenance where name = :name;
