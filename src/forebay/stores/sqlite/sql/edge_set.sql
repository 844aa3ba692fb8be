-- edge_set: how an edge stands from now on, if it still is what it was.
update forebay_edges set state = :state where child = :child and number = :number and state = :was;
