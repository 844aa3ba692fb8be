-- outbox_set_cursor: up to which edge a line of the list is done that has more of them than one transaction takes.
update forebay.dependency_outbox
set cursor_child_id = %(cursor_child_id)s::text, cursor_position = %(cursor_position)s::bigint
where id = %(id)s;
