-- This week's and the next week's partitions of what only grows.
select autofill.partitions_ensure(array['completion', 'attempt', 'answer']);
