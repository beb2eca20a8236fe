-- The first database.

create table partitions (  -- one small row, because every commit writes it
    id integer primary key,
    epoch integer not null,
    owner text not null,
    seq integer not null,
    tick integer not null,
    hash blob not null,
    watermark integer not null,
    watermark_hash blob not null,
    checksum integer not null  -- of id and epoch; seq, tick and hash are vouched for by the journal
) strict;

create table machines (  -- beside `partitions`, because a header can be large
    partition_id integer primary key,
    settings blob not null,
    settings_checksum integer not null,
    header blob not null,
    header_checksum integer not null
) strict;

create table journal (
    partition_id integer not null,
    seq integer not null,
    epoch integer not null,
    tick integer not null,
    hash blob not null,
    data blob not null,
    primary key (partition_id, seq)
) strict;

create table payloads (
    digest text primary key,
    data blob not null,
    checksum integer not null
) strict;

create table live_runs (
    partition_id integer not null,
    number integer not null,
    data blob not null,
    checksum integer not null,
    primary key (partition_id, number)
) strict;

create table live_tasks (
    partition_id integer not null,
    number integer not null,
    data blob not null,
    checksum integer not null,
    primary key (partition_id, number)
) strict;

create table definitions (
    tenant text not null,
    hash text not null,
    partition_id integer not null,
    name text not null,
    document blob not null,
    put_ms integer not null,
    checksum integer not null,
    primary key (tenant, hash, partition_id)
) strict;

create table runs (
    partition_id integer not null,
    number integer not null,
    id text not null,
    tenant text not null,
    workflow text not null,
    definition text not null,
    state integer not null,
    source text not null,
    by text not null,
    submitted_ms integer not null,
    started_ms integer not null,
    ended_ms integer not null,
    key text not null,
    error text not null,
    schedule text not null,
    record blob not null,
    output blob not null,
    attempts blob not null,
    checksum integer not null,
    primary key (partition_id, number)
) strict;
create unique index runs_by_id on runs (tenant, id);
create index runs_by_number on runs (tenant, number);
create index runs_by_state on runs (tenant, state, number);
create index runs_by_workflow on runs (tenant, workflow, number);
create index runs_by_key on runs (tenant, key, number) where key <> '';
create index runs_by_schedule on runs (tenant, schedule, number) where schedule <> '';

create table attempts (  -- in the order in which they were written
    place integer primary key,
    partition_id integer not null,
    run integer not null,
    data blob not null,
    checksum integer not null
) strict;
create index attempts_by_run on attempts (run);

create table children (
    run integer not null,
    step integer not null,
    child integer not null,
    partition_id integer not null,
    value blob not null,
    checksum integer not null,
    primary key (run, step, child, partition_id)
) strict;

create table cache (
    key text primary key,
    value blob not null,
    kept_ms integer not null,
    checksum integer not null
) strict;

create table log_chunks (
    task integer not null,
    attempt integer not null,
    chunk integer not null,
    first integer not null,
    lines integer not null,
    size integer not null,
    digest text not null,
    written_ms integer not null,
    primary key (task, attempt, chunk)
) strict, without rowid;
