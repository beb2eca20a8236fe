-- A day by which values go is there twice: a flipped bit in one of them is noticed, and nothing goes by it.

alter table payloads add column day_again integer not null default 0;
update payloads set day_again = day;
