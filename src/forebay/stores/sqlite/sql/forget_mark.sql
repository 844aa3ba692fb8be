-- forget_mark: keep what was done since `mark`.
release claim;
