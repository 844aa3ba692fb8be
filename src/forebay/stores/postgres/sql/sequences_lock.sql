-- sequences_lock: nobody else joins or leaves these sequences before the transaction ends. What is in them is read by later
-- statements. In one order, as everybody who locks several.
select pg_advisory_xact_lock(hashtext('forebay.sequences'), s.lock)
from (select distinct hashtext(name) as lock from unnest(%(names)b::text[]) as n (name) order by lock) as s;
