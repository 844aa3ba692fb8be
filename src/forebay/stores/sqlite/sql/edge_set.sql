-- edge_set: how an edge stands from now on.
update forebay_edges set state = :state where child = :child and number = :number;
