-- aftermath_next: the oldest line of the list.
select number, parent, aftermath from forebay_aftermaths order by number limit 1;
