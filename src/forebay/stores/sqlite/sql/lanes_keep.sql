-- lanes_keep: a share has nothing to run outside of its lanes: these keep its turn. Relies on index forebay_lanes_share.
update forebay_lanes
set resume = (select turn from forebay_shares where queue = :queue and share = :share)
where queue = :queue
  and share = :share
  and exists (select 1 from forebay_shares where queue = :queue and share = :share);
