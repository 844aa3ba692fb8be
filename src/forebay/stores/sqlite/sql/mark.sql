-- mark: where `unmark` takes the transaction back to, or `forget_mark` gives up going back to.
savepoint claim;
