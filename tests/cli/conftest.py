import pytest
from cli_process import Cli


@pytest.fixture
def cli(tmp_path):
    """The command line, in a directory of its own with a program in it."""
    made = Cli(tmp_path)
    yield made
    made.kill_all()
