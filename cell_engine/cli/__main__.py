"""`python -m cell_engine.cli`: the same as `autofill`, for who has the interpreter and not the script."""

from cell_engine.cli.main import main

if __name__ == "__main__":
    main()
