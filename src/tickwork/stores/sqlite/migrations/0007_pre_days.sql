-- Values that nothing names any more can go. What is there was needed today, as far as anybody knows.

alter table payloads add column day integer not null default 0;
update payloads set day = unixepoch() / 86400;
create index payloads_by_day on payloads (day);

create table renewals (
    partition_id integer primary key,
    day integer not null
) strict;
