-- oldest: 6
-- Documents that are kept for others, such as API keys, and what an event has changed. A program that knows only the
-- schemas before works on: it sees no documents, and its events do not say what they have changed.

create table forebay_documents (
  kind text not null,
  name text not null,
  body text not null,
  revision integer not null,
  created_at integer not null,
  updated_at integer not null,
  primary key (kind, name)
) strict, without rowid;

-- As JSON: by name what was before and what is after.
alter table forebay_events add column changes text;
