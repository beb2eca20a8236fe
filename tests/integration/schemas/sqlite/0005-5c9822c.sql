-- Ended runs lie in blocks. What ended before cannot be packed by SQL: a backup, made by the program that wrote it, can be
-- restored by this one.

create table only_without_ended_runs (
    runs integer check (runs = 0)
) strict;
insert into only_without_ended_runs (runs) select count(*) from runs;
drop table only_without_ended_runs;
drop table runs;

create table run_blocks (  -- those of a stretch of 256 numbers are neighbours
    first integer primary key,
    last integer not null,
    data blob not null,
    checksum integer not null
) strict;

create table run_ids (
    id text not null,
    tenant text not null,
    number integer not null,
    primary key (id, tenant)
) strict, without rowid;

create table run_keys (
    tenant text not null,
    key text not null,
    number integer not null,
    primary key (tenant, key, number)
) strict, without rowid;

create table run_groups (  -- what runs there are in a stretch
    tenant text not null,
    stretch integer not null,
    state integer not null,
    workflow text not null,
    schedule text not null,
    primary key (tenant, stretch, state, workflow, schedule)
) strict, without rowid;
create index run_groups_by_state on run_groups (tenant, state, stretch);
create index run_groups_by_workflow on run_groups (tenant, workflow, stretch);
create index run_groups_by_schedule on run_groups (tenant, schedule, stretch) where schedule <> '';
