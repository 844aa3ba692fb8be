-- schema_exists: whether this file has ever held a Forebay schema.
select 1 from sqlite_master where type = 'table' and name = 'forebay_schema';
