-- The first database.

create table migrations (  -- which of them made this schema
    number integer primary key,
    name text collate "C" not null,
    made_at timestamptz not null default clock_timestamp()
);

-- A commit locks its row here and changes nothing in it: a lock leaves no dead row behind, so that an old snapshot
-- held by somebody else never makes commits slower. The head is the last row of the journal.
create table partitions (
    id integer primary key,
    epoch bigint not null,
    owner text collate "C" not null,
    seq bigint not null,  -- up to here the journal was taken away: whoever does so moves these three with it
    tick bigint not null,
    hash bytea not null
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
    header bytea not null
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

create table payloads (
    digest text collate "C" primary key,
    data bytea not null
);
alter table payloads alter column data set storage external;

create table live_runs (
    number bigint primary key,  -- partition << 44 + n: a load reads the range of its partition
    data bytea not null
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);

create table live_tasks (
    number bigint primary key,
    data bytea not null
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);

create table definitions (
    tenant text collate "C" not null,
    hash text collate "C" not null,
    partition_id integer not null,
    name text collate "C" not null,
    document bytea not null,
    put_ms bigint not null,
    primary key (tenant, hash, partition_id)
);
create index definitions_by_partition on definitions (partition_id, hash);

create table runs (
    number bigint primary key,
    id text collate "C" not null,
    tenant text collate "C" not null,
    workflow text collate "C" not null,
    definition text collate "C" not null,
    state integer not null,
    source text collate "C" not null,
    by text collate "C" not null,
    submitted_ms bigint not null,
    started_ms bigint not null,
    ended_ms bigint not null,
    key text collate "C" not null,
    error text collate "C" not null,
    schedule text collate "C" not null,
    record bytea not null,
    output bytea not null,
    attempts bytea not null
);
create unique index runs_by_id on runs (tenant, id);
create index runs_by_state on runs (tenant, state, number);
create index runs_by_workflow on runs (tenant, workflow, number);
create index runs_by_key on runs (tenant, key, number) where key <> '';
create index runs_by_schedule on runs (tenant, schedule, number) where schedule <> '';
create index runs_by_end on runs using brin (ended_ms) with (autosummarize = on);

create table attempts (
    place bigint generated always as identity primary key,  -- one writer per run: its order is that of writing
    run bigint not null,
    data bytea not null
);
create index attempts_by_run on attempts (run, place);

create table children (
    run bigint not null,
    step integer not null,
    child bigint not null,
    value bytea not null,
    primary key (run, step, child)
);

create table cache (
    key text collate "C" primary key,
    value bytea not null,
    kept_ms bigint not null
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
    primary key (task, attempt, chunk)
);
