-- Values that nothing names any more can go. What is there was needed today, as far as anybody knows.

create function today() returns integer language sql stable as $body$
    select (extract(epoch from now())::bigint / 86400)::integer
$body$;

alter table payloads add column day integer not null default today();
alter table payloads alter column day set default 0;
create index payloads_by_day on payloads (day);

create table renewals (
    partition_id integer primary key,
    day integer not null
);
