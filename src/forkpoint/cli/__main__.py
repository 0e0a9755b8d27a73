"""``python -m forkpoint.cli``, which starts detached drivers."""

from forkpoint.cli import main

if __name__ == "__main__":
    main()
