"""``python -m forkpoint.cli``, by which detached drivers are started."""

from forkpoint.cli import main

if __name__ == "__main__":
    main()
