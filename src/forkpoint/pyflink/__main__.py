"""``python -m forkpoint.pyflink app.py ARGS``: runs ``app.py`` with forkpoint in place of PyFlink."""

import os
import runpy
import sys

from forkpoint.api.results import wait_for_jobs
from forkpoint.pyflink.finder import install

USAGE = "usage: python -m forkpoint.pyflink APP [ARGS]\n\nRuns the PyFlink program APP on forkpoint, as `python APP ARGS` would."


def main() -> None:
    """Run the program given on the command line."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        sys.exit(0 if arguments else 2)
    app = arguments[0]
    if not os.path.isfile(app):
        sys.exit(f"there is no file {app}")
    install()
    sys.argv = arguments
    # `-m` put the working directory first; a program expects its own directory there.
    sys.path[: 0 if sys.flags.safe_path else 1] = [os.path.dirname(os.path.realpath(app))]
    runpy.run_path(app, run_name="__main__")
    wait_for_jobs()  # which a cluster of Flink's runs, whether the program waits for them or not


if __name__ == "__main__":
    main()
