-- Schedules in rows of their own, and what became of their occurrences.

create table schedules (
    place integer primary key,  -- as of live_runs
    data blob not null,
    checksum integer not null
) strict;

create table fates (  -- ranges of occurrences that share a fate; they outlive runs and schedules
    tenant text not null,
    schedule text not null,
    from_ms integer not null,
    number integer not null,  -- of the schedule: the same name may come again
    backfill integer not null,
    partition_id integer not null,
    to_ms integer not null,
    data blob not null,
    checksum integer not null,
    primary key (tenant, schedule, from_ms, number, backfill, partition_id)
) strict, without rowid;

create table backfills (  -- those that ended
    place integer primary key,  -- as of live_runs
    tenant text not null,
    schedule text not null,
    data blob not null,
    checksum integer not null
) strict;
create index backfills_by_tenant on backfills (tenant);
