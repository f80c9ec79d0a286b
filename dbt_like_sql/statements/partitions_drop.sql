-- Drop partitions that ended this many days ago.
select autofill.partitions_drop(array['completion', 'attempt', 'answer'], clock_timestamp() - %(days)s * interval '1 day') as name;
