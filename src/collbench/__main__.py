"""`python -m collbench`: the same program as the `collbench` script."""

from collbench.cli import main

if __name__ == "__main__":
    main()
