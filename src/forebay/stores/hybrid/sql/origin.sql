-- origin: which database this is, whatever addresses lead to it: its name, and the number that its server was given when
-- it was made. A replica that takes over has the same one. Everybody may read it, unless somebody has seen to it.
select current_database()::text, system_identifier::text
from pg_control_system();
