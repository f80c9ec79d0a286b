-- Give the room of dead work back to new work. Every row swept is a tuple that lives for a moment: at a few thousand a
-- second, autovacuum, which looks once a minute, leaves 100 MB of them between what workers read. One at a time, and
-- without the lock that shortens the file.
vacuum (skip_locked, truncate false) autofill.work;
