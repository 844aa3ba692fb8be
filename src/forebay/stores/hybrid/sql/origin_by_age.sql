-- origin_by_age: the same where the server's number is not to be read: the name, and since when our tables are there.
select current_database()::text, applied_at::text
from forebay.schema
where number = 1;
