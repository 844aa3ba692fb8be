-- outbox_set_cursor: store the last resolved edge of an outbox entry.
update forebay_dependency_outbox
set cursor_child_id = :cursor_child_id,
    cursor_position = :cursor_position
where id = :id;
