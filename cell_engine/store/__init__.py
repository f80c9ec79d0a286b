"""The only caller of the SQL in `dbt_like_sql`: one function a statement or a transaction, and no logic of its own."""
