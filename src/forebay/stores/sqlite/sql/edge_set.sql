-- edge_set: set the state of an edge if it still is :old_state.
update forebay_dependencies set state = :state where child_id = :child_id and position = :position and state = :old_state;
