-- outbox_set_cursor: a line of the list is done up to an edge.
update forebay_dependency_outbox
set cursor_child_id = :cursor_child_id,
    cursor_position = :cursor_position
where id = :id;
