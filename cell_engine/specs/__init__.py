"""Specs: a collection's YAML compiled to columns, types and a DAG. Pure: no database, no network, no kinds."""
