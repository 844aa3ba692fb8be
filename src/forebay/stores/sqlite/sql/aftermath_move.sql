-- aftermath_move: a line of the list is done up to an edge.
update forebay_aftermaths
set after_child = :after_child,
    after_number = :after_number
where number = :number;
