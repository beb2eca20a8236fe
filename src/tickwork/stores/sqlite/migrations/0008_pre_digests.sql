-- What made this store: a migration that was edited after its use is noticed.

create table migrations (
    number integer primary key,
    name text not null,
    digest text not null
) strict;
