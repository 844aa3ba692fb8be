-- share_move: jobs of a share were taken.
update forebay_shares
set turn = turn + :by
where queue = :queue and share = :share;
