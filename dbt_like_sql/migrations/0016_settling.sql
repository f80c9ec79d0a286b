-- A pause or a resume has a second part: the rows that hold demand of the dispatch. Set until that is done, so that the
-- janitor finishes it for whoever died half-way.
alter table autofill.dispatch add column unsettled_at timestamptz;
