"""The engine: specs, store, plan, worker, kinds. Stands alone: it never imports Dagster."""
