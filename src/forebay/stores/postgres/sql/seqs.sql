-- seqs: numbers for new jobs. Two inserts at once may interleave, and none is used twice.
select nextval('forebay.seqs') from generate_series(1, %(jobs)s);
