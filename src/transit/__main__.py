"""``python -m transit``."""

from transit.cli import main

if __name__ == "__main__":
    main()
