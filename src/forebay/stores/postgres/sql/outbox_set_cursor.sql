-- outbox_set_cursor: store the last resolved edge of an outbox entry that has more edges than one transaction takes.
update forebay.dependency_outbox
set cursor_child_id = %(cursor_child_id)s::text, cursor_position = %(cursor_position)s::bigint
where id = %(id)s;
