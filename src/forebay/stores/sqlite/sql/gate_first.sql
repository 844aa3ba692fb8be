-- gate_first: whether anybody waits behind the gate of a limit, or in a lane there.
select 1
where exists (select 1 from forebay_jobs where state = 'pending' and queue = :queue and gate = :gate)
  or exists (select 1 from forebay_lanes where queue = :queue and scope = :scope);
