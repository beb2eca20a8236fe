-- Every row has a checksum, over its key too. What is there gets it from the program, which compares the old one first.

alter table founded add column checksum integer not null default 0;
alter table routes add column checksum integer not null default 0;
alter table renewals add column checksum integer not null default 0;
alter table log_chunks add column checksum integer not null default 0;
alter table archived add column checksum integer not null default 0;
