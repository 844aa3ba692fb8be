-- edge_set: how an edge stands from now on, if it still is what it was.
update forebay_dependencies set state = :state where child_id = :child_id and position = :position and state = :old_state;
