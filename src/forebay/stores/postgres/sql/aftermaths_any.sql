-- aftermaths_any: whether the list of what the ends of jobs mean for others holds anything.
select exists (select 1 from forebay.aftermaths);
