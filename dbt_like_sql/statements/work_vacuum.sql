-- Give the room of dead work back to new work. Every row swept is a tuple that lives for a moment. One at a time, and
-- without the lock that shortens the file.
vacuum (skip_locked, truncate false) autofill.work;
