-- It is empty, and locked: only its dead tuples go, and what the planner believes about it.
truncate autofill.work;
