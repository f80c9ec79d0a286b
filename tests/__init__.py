"""Tests, benchmarks and soaks. Their own functions are what their specs may name."""

import os

os.environ["AUTOFILL_FUNCTIONS"] = "tests.*,m:f,no_such_module_at_all"
