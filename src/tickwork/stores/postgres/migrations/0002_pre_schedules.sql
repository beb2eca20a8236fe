-- Schedules in rows of their own, and what became of their occurrences.

create table schedules (
    number bigint primary key,
    data bytea not null
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
    primary key (tenant, schedule, from_ms, number, backfill)
);

create table backfills (  -- those that ended
    number bigint primary key,
    tenant text collate "C" not null,
    schedule text collate "C" not null,
    data bytea not null
);
create index backfills_by_tenant on backfills (tenant, number);
