-- aftermath_move: up to which edge a line of the list is done that has more of them than one transaction takes.
update forebay.aftermaths
set after_child = %(after_child)s::text, after_number = %(after_number)s::bigint
where number = %(number)s;
