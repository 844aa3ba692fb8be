-- oldest: 10
-- Whoever looks for the lowest line of the list goes by its number. Where the table was analysed when it was full and
-- again when it was empty, an index that has the number behind the parent seems to cost less, and all of its dead entries
-- are read and sorted; one that holds only what has a parent, as all do, serves only those who name one.
drop index forebay.aftermaths_parent;
create index aftermaths_parent on forebay.aftermaths (parent, number) where parent is not null;
