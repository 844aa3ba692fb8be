-- unmark: undo what was done since `mark`, which stays.
rollback to claim;
