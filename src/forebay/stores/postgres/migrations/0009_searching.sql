-- oldest: 5
-- What a search among many finished jobs goes by: lists of one queue, of one task, of one key, of those that were
-- cancelled, each in the order of seq, and marks for what stands in the options. A program that knows only the
-- schemas before works on.

create index finished_queue_list on forebay.finished (queue, seq);
create index finished_task_list on forebay.finished (task, seq);
create index finished_key_list on forebay.finished (unique_key, seq) where unique_key is not null;
create index finished_cancelled_list on forebay.finished (seq) where state = 'cancelled';
create index dead_queue_list on forebay.dead (queue, seq);
create index dead_task_list on forebay.dead (task, seq);
create index dead_key_list on forebay.dead (unique_key, seq) where unique_key is not null;

-- Tags and ids in the options of a job, as numbers: those of different texts may be the same, so that who finds a job by
-- them looks at the texts too. Options that cannot be read have none. The sign for a zero character stands in its place,
-- since PostgreSQL reads no JSON with one.
create function forebay.marks(words text) returns bigint[]
language plpgsql immutable cost 1000
as $$
declare
  options json;
begin
  -- Not where it is declared: what goes wrong there is not caught.
  options := replace(words, '\u0000', '\u2400');
  return array(
    select hashtextextended('tags ' || tag, 0)
    from json_array_elements_text(coalesce(options -> 'tags', '[]')) as tag
    union all
    select hashtextextended(name || ' ' || (options ->> name), 0)
    from unnest(array['once_key', 'correlation_id', 'parent_id']) as name
    where options ->> name is not null
  );
exception when others then
  return null;
end
$$;

-- Without a list of what comes in: whoever settles when it is full would have to work all of it in.
create index finished_marks on forebay.finished using gin (forebay.marks(options)) with (fastupdate = off)
where options ~ '"(tags|once_key|correlation_id|parent_id)":';
create index dead_marks on forebay.dead using gin (forebay.marks(options)) with (fastupdate = off)
where options ~ '"(tags|once_key|correlation_id|parent_id)":';

-- Every job with what lists go by, and without a look at the narrow row of a live one, which tells its state.
create view forebay.listing as
  select 'live' as place, seq, queue, task, null::text as state, unique_key, created_at from forebay.jobs
  union all
  select 'finished', seq, queue, task, state, unique_key, created_at from forebay.finished
  union all
  select 'dead', seq, queue, task, state, unique_key, created_at from forebay.dead;
