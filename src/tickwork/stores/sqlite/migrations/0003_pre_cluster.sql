-- What several nodes share. Numbers are unique over partitions, so that they need no partition beside them.

create table founded (  -- one row, for good
    one integer primary key check (one = 1),
    cluster text not null,
    partitions integer not null
) strict;

create table routes (
    tenant text primary key,
    home integer not null,
    spread integer not null
) strict, without rowid;

create table inbox (
    partition_id integer not null,
    id text not null,
    tenant text not null,
    data blob not null,
    by text not null,
    checksum integer not null,
    primary key (partition_id, id)
) strict, without rowid;

alter table live_runs rename column place to number;
alter table live_tasks rename column place to number;
alter table runs rename column place to number;
alter table schedules rename column place to number;
alter table backfills rename column place to number;
alter table attempts drop column partition_id;

create table children_new (
    run integer not null,
    step integer not null,
    child integer not null,
    value blob not null,
    checksum integer not null,
    primary key (run, step, child)
) strict;
insert into children_new (run, step, child, value, checksum) select run, step, child, value, checksum from children;
drop table children;
alter table children_new rename to children;

create table fates_new (
    tenant text not null,
    schedule text not null,
    from_ms integer not null,
    number integer not null,
    backfill integer not null,
    to_ms integer not null,
    data blob not null,
    checksum integer not null,
    primary key (tenant, schedule, from_ms, number, backfill)
) strict, without rowid;
insert into fates_new (tenant, schedule, from_ms, number, backfill, to_ms, data, checksum)
select tenant, schedule, from_ms, number, backfill, to_ms, data, checksum from fates;
drop table fates;
alter table fates_new rename to fates;
