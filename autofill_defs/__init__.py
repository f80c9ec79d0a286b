"""The Dagster code location: collections as components, assets, runs, sensors. Only it imports Dagster."""
