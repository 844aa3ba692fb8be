-- duty_due: when a duty is due again.
select due_at from forebay_duties where name = :name;
