-- Today's truth; migrations/ is how to get there.
-- Texts compare by their bytes: the same order as in every other store, and the cheapest one.
-- `checksum` is over the row as it was given, its key too: PostgreSQL need not have checksums of its own, and those do not
-- see what was damaged before it was written. 0 in `inbox`: it came by SQL, and nobody made one.
-- What arrives compressed, or is too large to be squeezed in passing, is stored as it is (`storage external`).

create table migrations (  -- which of them made this schema
    number integer primary key,
    name text collate "C" not null,
    made_at timestamptz not null default clock_timestamp(),
    digest text collate "C" not null default ''
);

create table founded (  -- one row, for good
    one boolean primary key default true check (one),
    cluster text collate "C" not null,
    partitions integer not null,
    checksum bigint not null default 0
);

create table routes (
    tenant text collate "C" primary key,
    home integer not null,
    spread integer not null,
    checksum bigint not null default 0
);

create table inbox (  -- no sequence numbers: those become visible out of order, and a reader would skip rows
    partition_id integer not null,
    id text collate "C" not null,
    tenant text collate "C" not null,
    data bytea not null,
    by text collate "C" not null,
    checksum bigint not null default 0,
    primary key (partition_id, id)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500);

-- A commit locks its row here and changes nothing in it: a lock leaves no dead row behind, so that an old snapshot
-- held by somebody else never makes commits slower. The head is the last row of the journal.
create table partitions (
    id integer primary key,
    epoch bigint not null,
    owner text collate "C" not null,
    seq bigint not null,  -- up to here the journal was taken away: whoever does so moves these three with it
    tick bigint not null,
    hash bytea not null,
    checksum bigint not null default 0
);

create table watermarks (  -- apart from `partitions`, so that commits do not wait for rows
    partition_id integer primary key,
    epoch bigint not null,
    watermark bigint not null,
    hash bytea not null,
    writes bigint not null  -- counts them, so that one whose answer was lost is not made twice
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create table machines (
    partition_id integer primary key,
    settings bytea not null,
    header bytea not null,
    settings_checksum bigint not null default 0,
    header_checksum bigint not null default 0
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
alter table machines alter column header set storage external;

create table journal (  -- rows are added and taken away whole, never changed
    partition_id integer not null,
    seq bigint not null,
    epoch bigint not null,
    tick bigint not null,
    hash bytea not null,
    data bytea not null,
    primary key (partition_id, seq)
);
alter table journal alter column data set storage external;

create function today() returns integer language sql stable as $body$
    select (extract(epoch from now())::bigint / 86400)::integer
$body$;

create table payloads (
    digest text collate "C" primary key,
    data bytea not null,
    day integer not null default today(),  -- the last on which somebody said that it is needed
    day_again integer not null default today()  -- the same: a flipped bit in one of them is noticed, and nothing goes by it
);
alter table payloads alter column data set storage external;
create index payloads_by_day on payloads (day);

create table renewals (  -- when all that a partition names was last said to be needed
    partition_id integer primary key,
    day integer not null,
    checksum bigint not null default 0
);

create table live_runs (
    number bigint primary key,  -- partition << 44 + n: a load reads the range of its partition
    data bytea not null,
    checksum bigint not null default 0
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);

create table live_tasks (
    number bigint primary key,
    data bytea not null,
    checksum bigint not null default 0
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);

create table definitions (
    tenant text collate "C" not null,
    hash text collate "C" not null,
    partition_id integer not null,
    name text collate "C" not null,
    document bytea not null,
    put_ms bigint not null,
    checksum bigint not null default 0,
    primary key (tenant, hash, partition_id)
);
create index definitions_by_partition on definitions (partition_id, hash);

create table run_blocks (  -- those of a stretch of 256 numbers are neighbours
    first bigint primary key,
    held bytea not null,
    marks bytea not null,
    data bytea not null,
    outline_checksum bigint not null default 0,
    checksum bigint not null default 0
);
alter table run_blocks alter column held set storage plain;
alter table run_blocks alter column marks set storage external;
alter table run_blocks alter column data set storage external;

create table run_clues (  -- in which stretches an id may be
    clue bigint not null,
    stretch bigint not null,
    primary key (clue, stretch)
);

create table run_keys (
    tenant text collate "C" not null,
    key text collate "C" not null,
    number bigint not null,
    primary key (tenant, key, number)
);

create table run_groups (  -- what runs there are in a stretch
    tenant text collate "C" not null,
    stretch bigint not null,
    state integer not null,
    workflow text collate "C" not null,
    schedule text collate "C" not null,
    primary key (tenant, stretch, state, workflow, schedule)
);
create index run_groups_by_state on run_groups (tenant, state, stretch);
create index run_groups_by_workflow on run_groups (tenant, workflow, stretch);
create index run_groups_by_schedule on run_groups (tenant, schedule, stretch) where schedule <> '';

create table attempts (
    place bigint generated always as identity primary key,  -- one writer per run: its order is that of writing
    run bigint not null,
    data bytea not null,
    checksum bigint not null default 0
);
create index attempts_by_run on attempts (run, place);

create table children (
    run bigint not null,
    step integer not null,
    child bigint not null,
    value bytea not null,
    checksum bigint not null default 0,
    primary key (run, step, child)
);

create table cache (
    key text collate "C" primary key,
    value bytea not null,
    kept_ms bigint not null,
    checksum bigint not null default 0
);

create table log_chunks (
    task bigint not null,
    attempt integer not null,
    chunk integer not null,
    first bigint not null,
    lines bigint not null,
    size bigint not null,
    digest text collate "C" not null,
    written_ms bigint not null,
    checksum bigint not null default 0,
    primary key (task, attempt, chunk)
);

create table schedules (
    number bigint primary key,
    data bytea not null,
    checksum bigint not null default 0
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);

create table fates (  -- ranges of occurrences that share a fate; they outlive runs and schedules
    tenant text collate "C" not null,
    schedule text collate "C" not null,
    from_ms bigint not null,
    number bigint not null,  -- of the schedule: the same name may come again
    backfill bigint not null,
    to_ms bigint not null,
    data bytea not null,
    checksum bigint not null default 0,
    primary key (tenant, schedule, from_ms, number, backfill)
);

create table backfills (  -- those that ended
    number bigint primary key,
    tenant text collate "C" not null,
    schedule text collate "C" not null,
    data bytea not null,
    checksum bigint not null default 0
);
create index backfills_by_tenant on backfills (tenant, number);

create table members (  -- nodes that live; times are the server's
    session text collate "C" primary key,
    node text collate "C" not null,
    address text collate "C" not null,
    data bytea not null,
    until timestamptz not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create table leases (  -- who tries; who wins is for `partitions` to say
    partition_id integer primary key,
    session text collate "C" not null,
    node text collate "C" not null,
    address text collate "C" not null,
    until timestamptz not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create table archives (  -- objects in the artifact store
    object text collate "C" primary key,
    kind text collate "C" not null,
    partition_id integer not null,
    first bigint not null,
    last bigint not null,
    rows bigint not null,
    size bigint not null,
    before bytea not null,
    hash bytea not null,
    tick bigint not null,
    from_ms bigint not null,
    to_ms bigint not null,
    written_ms bigint not null,
    checksum bigint not null default 0
);
create index archives_by_place on archives (partition_id, kind, last);
create index archives_by_age on archives (to_ms);

create table archived (  -- where a run is that is no longer in a block
    tenant text collate "C" not null,
    id text collate "C" not null,
    number bigint not null,
    object text collate "C" not null,
    checksum bigint not null default 0,
    primary key (tenant, id)
);
create index archived_by_object on archived (object);

create index log_chunks_by_digest on log_chunks (digest);

-- Rows behind, in one round trip: the fence first, then what there is to write. 0: fenced, or not the next. 1: written.
-- 2: this very write (by `writes_before`) was made already, and nothing is changed.
create function write_rows(
    of_partition integer, of_epoch bigint, writes_before bigint, through bigint, through_hash bytea, new_header bytea,
    new_header_checksum bigint,
    gone_runs bigint[], put_runs bigint[], put_runs_data bytea[], put_runs_checksum bigint[],
    gone_tasks bigint[], put_tasks bigint[], put_tasks_data bytea[], put_tasks_checksum bigint[],
    gone_schedules bigint[], put_schedules bigint[], put_schedules_data bytea[], put_schedules_checksum bigint[],
    attempts_run bigint[], attempts_data bytea[], attempts_checksum bigint[]
) returns integer language plpgsql as $body$
#variable_conflict use_column
begin
    perform set_config('synchronous_commit', 'off', true);
    update watermarks set watermark = through, hash = through_hash, writes = writes_before + 1
     where partition_id = of_partition and epoch = of_epoch and writes = writes_before and watermark <= through
       and (exists (select from journal j where j.partition_id = of_partition and j.seq = through)
            or exists (select from partitions p where p.id = of_partition and p.seq >= through));
    if not found then
        return 2 * (select count(*) from watermarks w
                     where w.partition_id = of_partition and w.epoch = of_epoch and w.writes = writes_before + 1);
    end if;
    if length(new_header) > 0 then
        update machines set header = new_header, header_checksum = new_header_checksum
         where partition_id = of_partition;
    end if;
    if cardinality(gone_runs) > 0 then
        delete from live_runs where number = any(gone_runs);
    end if;
    if cardinality(put_runs) > 0 then
        insert into live_runs (number, data, checksum)
        select * from unnest(put_runs, put_runs_data, put_runs_checksum)
        on conflict (number) do update set data = excluded.data, checksum = excluded.checksum;
    end if;
    if cardinality(gone_tasks) > 0 then
        delete from live_tasks where number = any(gone_tasks);
    end if;
    if cardinality(put_tasks) > 0 then
        insert into live_tasks (number, data, checksum)
        select * from unnest(put_tasks, put_tasks_data, put_tasks_checksum)
        on conflict (number) do update set data = excluded.data, checksum = excluded.checksum;
    end if;
    if cardinality(gone_schedules) > 0 then
        delete from schedules where number = any(gone_schedules);
    end if;
    if cardinality(put_schedules) > 0 then
        insert into schedules (number, data, checksum)
        select * from unnest(put_schedules, put_schedules_data, put_schedules_checksum)
        on conflict (number) do update set data = excluded.data, checksum = excluded.checksum;
    end if;
    if cardinality(attempts_run) > 0 then
        insert into attempts (run, data, checksum)
        select * from unnest(attempts_run, attempts_data, attempts_checksum);
    end if;
    return 1;
end
$body$;

-- Ended runs; called in the same statement, or where some of them were taken away first.
create function put_runs(
    block_first bigint[], block_held bytea[], block_marks bytea[], block_data bytea[],
    block_outline_checksum bigint[], block_checksum bigint[],
    clue bigint[], clue_stretch bigint[],
    group_tenant text[], group_stretch bigint[], group_state integer[], group_workflow text[], group_schedule text[],
    key_tenant text[], key_key text[], key_number bigint[]
) returns boolean language plpgsql as $body$
#variable_conflict use_column
begin
    insert into run_blocks (first, held, marks, data, outline_checksum, checksum)
    select * from unnest(block_first, block_held, block_marks, block_data, block_outline_checksum, block_checksum);
    insert into run_clues (clue, stretch) select * from unnest(clue, clue_stretch) on conflict do nothing;
    insert into run_groups (tenant, stretch, state, workflow, schedule)
    select * from unnest(group_tenant, group_stretch, group_state, group_workflow, group_schedule)
    on conflict do nothing;
    if cardinality(key_number) > 0 then
        insert into run_keys (tenant, key, number) select * from unnest(key_tenant, key_key, key_number)
        on conflict do nothing;
    end if;
    return true;
end
$body$;

-- What most writes of rows have none of; called in the same statement.
create function write_rest(
    of_partition integer,
    fate_tenant text[], fate_schedule text[], fate_from_ms bigint[], fate_number bigint[], fate_backfill bigint[],
    fate_to_ms bigint[], fate_data bytea[], fate_checksum bigint[],
    backfill_number bigint[], backfill_tenant text[], backfill_schedule text[], backfill_data bytea[],
    backfill_checksum bigint[],
    definition_hash text[], definition_tenant text[], definition_name text[], definition_document bytea[],
    definition_put_ms bigint[], definition_checksum bigint[],
    child_run bigint[], child_step integer[], child_number bigint[], child_value bytea[], child_checksum bigint[],
    cache_key text[], cache_value bytea[], cache_kept_ms bigint[], cache_checksum bigint[]
) returns boolean language plpgsql as $body$
#variable_conflict use_column
begin
    if cardinality(fate_number) > 0 then
        insert into fates (tenant, schedule, from_ms, number, backfill, to_ms, data, checksum)
        select * from unnest(fate_tenant, fate_schedule, fate_from_ms, fate_number, fate_backfill, fate_to_ms, fate_data,
                             fate_checksum)
        on conflict (tenant, schedule, from_ms, number, backfill) do update set
            to_ms = excluded.to_ms, data = excluded.data, checksum = excluded.checksum;
    end if;
    if cardinality(backfill_number) > 0 then
        insert into backfills (number, tenant, schedule, data, checksum)
        select * from unnest(backfill_number, backfill_tenant, backfill_schedule, backfill_data, backfill_checksum)
        on conflict (number) do update set
            tenant = excluded.tenant, schedule = excluded.schedule, data = excluded.data, checksum = excluded.checksum;
    end if;
    if cardinality(definition_hash) > 0 then
        insert into definitions (hash, tenant, name, document, put_ms, checksum, partition_id)
        select *, of_partition from unnest(definition_hash, definition_tenant, definition_name, definition_document,
                                           definition_put_ms, definition_checksum)
        on conflict (tenant, hash, partition_id) do update set
            name = excluded.name, document = excluded.document, put_ms = excluded.put_ms, checksum = excluded.checksum;
    end if;
    if cardinality(child_run) > 0 then
        insert into children (run, step, child, value, checksum)
        select * from unnest(child_run, child_step, child_number, child_value, child_checksum)
        on conflict (run, step, child) do update set value = excluded.value, checksum = excluded.checksum;
    end if;
    if cardinality(cache_key) > 0 then
        insert into cache (key, value, kept_ms, checksum)
        select * from unnest(cache_key, cache_value, cache_kept_ms, cache_checksum)
        on conflict (key) do update set
            value = excluded.value, kept_ms = excluded.kept_ms, checksum = excluded.checksum;
    end if;
    return true;
end
$body$;

create table journal_index (  -- which rows of the journal concern a subject, and what they alone do not say
    partition_id integer not null,
    kind integer not null,
    subject bigint not null,
    seq bigint not null,
    data bytea not null,
    checksum bigint not null,
    primary key (partition_id, kind, subject, seq)
);
create index journal_index_by_seq on journal_index (partition_id, seq);

-- Index entries, each in place of one of the same kind, subject and seq; called in the same statement.
create function put_index(
    of_partition integer, entry_kind integer[], entry_subject bigint[], entry_seq bigint[], entry_data bytea[],
    entry_checksum bigint[]
) returns boolean language plpgsql as $body$
#variable_conflict use_column
begin
    insert into journal_index (partition_id, kind, subject, seq, data, checksum)
    select of_partition, * from unnest(entry_kind, entry_subject, entry_seq, entry_data, entry_checksum)
    on conflict (partition_id, kind, subject, seq) do update set data = excluded.data, checksum = excluded.checksum;
    return true;
end
$body$;

-- Accept a run in the caller's own transaction: it is there when that commits, or never was. The next owner of the
-- partition takes it from the inbox. Whoever may call this needs no right on any table.
create function enqueue(
    workflow text,
    inputs jsonb default '{}',
    key text default '',  -- the same key gives the same run for 24 h
    delay interval default null,
    start_at timestamptz default null,
    priority integer default null,
    options jsonb default '{}'  -- further fields of a submission, as POST /v1/runs takes them: queue, timeout_ms, retry …
) returns text language plpgsql security definer as $body$
#variable_conflict use_column
declare
    of_tenant constant text := 'default';
    partition_count integer;
    home_partition integer;
    spread_over integer;
    -- An id of version 7. Its time is that of the transaction, which is no later than the snapshot by which the place is
    -- chosen; then come microseconds since, so that ids are in order.
    began_ms constant bigint := floor(extract(epoch from now()) * 1000);
    since_us constant text := lpad(to_hex(least(16777215, greatest(0,
        (extract(epoch from clock_timestamp()) * 1000000)::bigint - began_ms * 1000))), 6, '0');
    hex constant text := lpad(to_hex(began_ms), 12, '0') || '7' || left(since_us, 3) || '8' || right(since_us, 3);
    run_id constant text := left(hex, 8) || '-' || substr(hex, 9, 4) || '-' || substr(hex, 13, 4) || '-'
        || substr(hex, 17, 4) || right(gen_random_uuid()::text, 13);
    starts timestamptz := coalesce(enqueue.start_at, clock_timestamp() + enqueue.delay);
    reserved text;
    document text;
begin
    if coalesce(enqueue.workflow, '') = '' or length(enqueue.workflow) > 128 then
        raise exception 'tickwork.enqueue: workflow is a name of 1 to 128 characters' using errcode = '22023';
    elsif jsonb_typeof(enqueue.inputs) is distinct from 'object' then
        raise exception 'tickwork.enqueue: inputs are an object, as {"order": 7}' using errcode = '22023';
    elsif jsonb_typeof(enqueue.options) is distinct from 'object' then
        raise exception 'tickwork.enqueue: options are an object, as {"queue": "mail"}' using errcode = '22023';
    elsif length(enqueue.key) > 255 then
        raise exception 'tickwork.enqueue: key has at most 255 characters' using errcode = '22023';
    elsif enqueue.delay is not null and enqueue.start_at is not null then
        raise exception 'tickwork.enqueue: give delay or start_at, not both' using errcode = '22023';
    elsif enqueue.delay < interval '0' or not isfinite(starts) then
        raise exception 'tickwork.enqueue: delay and start_at name a time to come' using errcode = '22023';
    elsif enqueue.priority not between 0 and 9 then
        raise exception 'tickwork.enqueue: priority is 0 to 9' using errcode = '22023';
    end if;
    reserved := (select name from jsonb_object_keys(enqueue.options) as name
                  where name in ('workflow', 'inputs', 'id', 'key', 'start_at', 'delay_ms', 'priority') limit 1);
    if reserved is not null then
        raise exception 'tickwork.enqueue: % is not given in options', reserved
            using errcode = '22023', hint = 'use the argument of the function; ids are made by it';
    elsif enqueue.options ?| array['debounce', 'at_most_ms'] then
        raise exception 'tickwork.enqueue: debounce needs the answer of the server'
            using errcode = '22023', hint = 'submit the run through the API after the commit';
    end if;
    document := jsonb_build_object('workflow', enqueue.workflow, 'inputs', enqueue.inputs, 'id', run_id)
        || enqueue.options
        || case when coalesce(enqueue.key, '') <> '' then jsonb_build_object('key', enqueue.key) else '{}' end
        || case when enqueue.priority is not null then jsonb_build_object('priority', enqueue.priority) else '{}' end
        || case when starts is not null then jsonb_build_object('start_at',
               to_char(starts at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) else '{}' end;
    if octet_length(document) > 1048576 then
        raise exception 'tickwork.enqueue: a run has at most 1 MiB' using errcode = '54000',
            hint = 'put the data where tasks can read it, and enqueue its name';
    end if;
    select f.partitions into partition_count from founded f;
    if partition_count is null then
        raise exception 'tickwork.enqueue: no node has used this store yet' using errcode = '55000',
            hint = 'start one: tickwork server --store postgresql://…';
    end if;
    -- Where a tenant has no route it lives at home alone: stable_hash('home', 'default').
    select r.home, r.spread into home_partition, spread_over from routes r where r.tenant = of_tenant;
    home_partition := coalesce(home_partition, mod(8461233960386909195, partition_count));
    if coalesce(enqueue.key, '') = '' then
        home_partition := mod(home_partition + mod(('x' || right(run_id, 4))::bit(16)::integer,
            least(greatest(coalesce(spread_over, 1), 1), partition_count)), partition_count);
    end if;
    insert into inbox (partition_id, id, tenant, data, by)
    values (home_partition, run_id, of_tenant, convert_to(document, 'UTF8'), 'sql:' || session_user);
    -- It only wakes the nodes that listen: they read the inbox every second anyway. One transaction at a time does so,
    -- because a commit with a notification waits for all others of that kind.
    if pg_try_advisory_xact_lock(x'7469636c'::integer, hashtext(current_schema())) then
        perform pg_notify('tickwork_inbox', current_schema());
    end if;
    return run_id;
end
$body$;

-- Only the schema's owner may call it until it grants the right. Names lead nowhere else, whatever the caller's path.
do $body$
begin
    execute format('alter function enqueue(text, jsonb, text, interval, timestamptz, integer, jsonb)'
                   ' set search_path = %I, pg_catalog, pg_temp', current_schema());
    revoke execute on function enqueue(text, jsonb, text, interval, timestamptz, integer, jsonb) from public;
end
$body$;
