"""forkpoint.toml, environment variables and flags: which one counts, what `config show` says, and what is refused."""

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import forkpoint as fp
from forkpoint.api.launch import SETTABLE, variable
from forkpoint.cli import main
from forkpoint.cli.commands.state import state
from forkpoint.cli.commands.upkeep import gc
from forkpoint.cli.defaults import general_options, known_options

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "configuration.md").read_text()

PRINTING = """
import forkpoint as fp
env = fp.StreamExecutionEnvironment.get_execution_environment()
env.set_max_parallelism(99)
env.from_collection([1, 2, 3], int).uid("numbers").sink_to(fp.DiscardSink()).uid("out")
print(env.options.state_backend, env.options.checkpoint.interval_ms, env.options.max_parallelism)
env.execute("printing")
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory, without the settings of the one who runs the tests."""
    for name in list(os.environ):
        if name.startswith("FORKPOINT_") or name == "SPARK_MASTER":
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FORKPOINT_CONFIG", "none")  # so that what the command line sets is undone
    monkeypatch.delenv("FORKPOINT_CONFIG")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(place, text, name="forkpoint.toml"):
    (place / name).parent.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(text)


def invoke(*args):
    return CliRunner().invoke(main, args)


def shown(*args):
    done = invoke("--output", "json", *args, "config", "show", "-a")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["settings"]
    return {".".join(filter(None, (each["section"], each["key"]))): each for each in found}


def refused(*args):
    done = invoke(*args)
    assert done.exit_code != 0
    return " ".join(done.output.split())


def test_the_file_of_the_flag_the_variable_the_directory_and_the_home(place, monkeypatch):
    def root_with(*args):
        return Path(shown(*args)["state-root"]["value"]).name

    assert root_with() == ".forkpoint"
    for name in ("home/forkpoint/config.toml", "forkpoint.toml", "by-variable.toml", "by-flag.toml"):
        write(place, f"state-root = '{Path(name).stem}'", name)
    (place / "forkpoint.toml").rename(place / "kept.toml")
    assert root_with() == "config"
    (place / "kept.toml").rename(place / "forkpoint.toml")
    assert root_with() == "forkpoint"
    monkeypatch.setenv("FORKPOINT_CONFIG", "by-variable.toml")
    assert root_with() == "by-variable"
    assert root_with("--config", "by-flag.toml") == "by-flag"
    monkeypatch.setenv("FORKPOINT_CONFIG", "")
    assert root_with() == ".forkpoint"
    monkeypatch.setenv("FORKPOINT_CONFIG", "missing.toml")
    assert "missing.toml cannot be read" in refused("list")
    assert "does not exist" in refused("--config", "missing.toml", "list")


def test_flags_before_variables_before_the_file(place, monkeypatch):
    write(place, 'state-root = "in-file"\n\n[run]\nparallelism = 3\n\n[job]\npipeline.max-parallelism = 7\n')
    found = shown()
    assert found["state-root"]["value"] == str(place / "in-file")
    assert (found["state-root"]["origin"], found["state-root"]["place"]) == ("file", f"{place}/forkpoint.toml, line 1")
    assert (found["run.parallelism"]["value"], found["run.parallelism"]["place"]) == (
        "3",
        f"{place}/forkpoint.toml, line 4",
    )
    assert (found["job.pipeline.max-parallelism"]["value"], found["job.state.backend.type"]["origin"]) == (7, "default")
    monkeypatch.setenv("FORKPOINT_STATE_ROOT", "in-variable")
    monkeypatch.setenv("FORKPOINT_RUN__PARALLELISM", "4")
    monkeypatch.setenv("FORKPOINT_JOB__PIPELINE_MAX_PARALLELISM", "8")
    found = shown()
    assert (found["state-root"]["value"], found["state-root"]["place"]) == (
        str(place / "in-variable"),
        "FORKPOINT_STATE_ROOT",
    )
    assert (found["run.parallelism"]["value"], found["run.parallelism"]["origin"]) == ("4", "environment")
    assert found["job.pipeline.max-parallelism"]["value"] == "8"
    found = shown("--state-root", "by-flag")
    assert (found["state-root"]["value"], found["state-root"]["place"]) == (str(place / "by-flag"), "--state-root")


def test_options_of_commands_get_their_values(place, monkeypatch):
    got = {}
    for command in (gc, state.commands["get"]):
        monkeypatch.setattr(command, "callback", lambda **given: got.update(given))
    write(place, '[gc]\ndry-run = true\nolder-than = "2h"\n\n[state.get]\nlimit = 7\n')
    assert invoke("gc").exit_code == 0
    assert (got["dry_run"], got["age_ms"]) == (True, 7_200_000)
    invoke("gc", "--older-than", "3h")
    assert got["age_ms"] == 10_800_000
    monkeypatch.setenv("FORKPOINT_GC__DRY_RUN", "false")
    invoke("gc")
    assert got["dry_run"] is False
    assert invoke("state", "get", "a", "b", "c").exit_code == 0
    assert got["limit"] == 7
    write(place, "[state.get]\nlimit = 8\n", "other.toml")
    invoke("state", "get", "--config", "other.toml", "a", "b", "c")
    assert got["limit"] == 8


def test_output_and_verbose_apply_to_all_commands(place):
    write(place, 'output = "json"')
    assert json.loads(invoke("list").stdout) == {"jobs": []}
    assert "no running jobs" in invoke("--output", "text", "list").stdout
    assert "no running jobs" in invoke("list", "--output", "text").stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("state_root = 'x'", "line 1: there is no setting 'state_root'; did you mean 'state-root'?"),
        ("[run]\n\nparalelism = 3", "line 3: there is no setting 'run.paralelism'; did you mean 'run.parallelism'?"),
        ("[rum]\nparallelism = 3", "line 1: there is no section 'rum'; did you mean 'run'?"),
        ("[run]\nparallelism = 0", "line 2: run.parallelism = 0; 0 is not in the range 1<=x<=32768"),
        ("[run]\nparallelism = true", "line 2: run.parallelism = True; write a text or a number"),
        ("[run]\nparallelism = 1.5", "line 2: run.parallelism = 1.5; '1.5' is not a valid integer range"),
        ("[run]\nengine = 'flink'", "line 2: run.engine = 'flink'; 'flink' is not one of 'spark', 'local'"),
        ("[run]\nconf = ['x=1']", "line 2: run.conf = ['x=1']; 'x=1' is not of the form spark.NAME=VALUE"),
        ("[run]\nconf = 'x=1'", "line 2: run.conf = 'x=1'; write a list of texts"),
        ("[run]\ndetached = 'yes'", "line 2: run.detached = 'yes'; write true or false"),
        (
            "[run]\nsavepoint-every = 'soon'",
            "line 2: run.savepoint-every = 'soon'; 'soon' is not a duration; write it as 30s",
        ),
        ("output = 'xml'", "line 1: output = 'xml'; write one of 'text', 'json'"),
        ("state-root = 3", "line 1: state-root = 3; give a path or URL, in quotes"),
        ("[run\n", "is not valid TOML"),
    ],
)
def test_what_is_wrong_in_the_file_is_said_with_its_place_and_remedy(place, text, said):
    write(place, text)
    message = refused("config", "show")
    assert said in message
    assert "forkpoint.toml" in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[job]\nparallelism.defualt = 3",
            "line 2: there is no option 'parallelism.defualt'; did you mean 'parallelism.default'?",
        ),
        (
            "[job]\nexecution.checkpointing.interval = 'x'",
            "line 2: execution.checkpointing.interval = 'x' is not a duration",
        ),
        (
            "[job]\nexecution.checkpointing.dir = 'x'",
            "line 2: the state root is state-root = …, at the top of the file",
        ),
        ("[job]\npipeline.max-parallelism = 0", "the maximum parallelism is 0"),
        ("job = 3", "write the job options below [job]"),
    ],
)
def test_wrong_job_options_end_programs_and_config_show(place, text, said):
    write(place, text)
    assert said in refused("config", "show")
    with pytest.raises(fp.ConfigError, match=re.escape("forkpoint.toml")) as error:
        fp.StreamExecutionEnvironment.get_execution_environment()
    assert said in str(error.value)


def test_unknown_variables_are_refused(place, monkeypatch):
    monkeypatch.setenv("FORKPOINT_SERVER_PORT", "tcp://10.0.0.1:80")  # Kubernetes makes such variables
    assert invoke("list").exit_code == 0
    monkeypatch.setenv("FORKPOINT_RUN__PARALELISM", "3")
    assert "FORKPOINT_RUN__PARALELISM sets no option; did you mean FORKPOINT_RUN__PARALLELISM?" in refused("list")
    monkeypatch.delenv("FORKPOINT_RUN__PARALELISM")
    monkeypatch.setenv("FORKPOINT_JOB__PARALLELISM", "3")
    with pytest.raises(fp.ConfigError, match="did you mean FORKPOINT_JOB__PARALLELISM_DEFAULT"):
        fp.StreamExecutionEnvironment.get_execution_environment()
    monkeypatch.delenv("FORKPOINT_JOB__PARALLELISM")
    monkeypatch.setenv("FORKPOINT_JOB__PARALLELISM_DEFAULT", "x")
    with pytest.raises(fp.ConfigError, match=r"^FORKPOINT_JOB__PARALLELISM_DEFAULT: .* is not an integer"):
        fp.StreamExecutionEnvironment.get_execution_environment()


def test_file_and_environment_together_make_an_option(place, monkeypatch):
    write(place, "[job]\nperiodic.savepoint.interval = '1 h'\n")
    monkeypatch.setenv("FORKPOINT_JOB__SAVEPOINT_HISTORY_MAX_COUNT", "3")
    schedule = fp.StreamExecutionEnvironment.get_execution_environment().options.savepoint_schedule
    assert (schedule.interval_ms, schedule.keep_last) == (3_600_000, 3)


def test_programs_get_the_job_options_and_override_them(place, monkeypatch):
    write(place, "[job]\nstate.backend.type = 'rocksdb'\nparallelism.default = 3\nspark.ui.enabled = false\n")
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    assert (env.options.state_backend, env.get_parallelism(), env.options.spark) == (
        "rocksdb",
        3,
        {"spark.ui.enabled": "false"},
    )
    assert fp.StreamExecutionEnvironment.get_execution_environment({"parallelism.default": 5}).get_parallelism() == 5
    monkeypatch.setenv("FORKPOINT_JOB__PARALLELISM_DEFAULT", "4")
    assert fp.StreamExecutionEnvironment.get_execution_environment().get_parallelism() == 4


@pytest.mark.parametrize("variable_name", ["FORKPOINT_ENGINE", "SPARK_MASTER"])
def test_the_variables_of_engine_and_master_override_the_file(place, monkeypatch, variable_name):
    write(place, "[job]\nexecution.engine = 'local'\nspark.master = 'local[3]'\n")
    options = fp.StreamExecutionEnvironment.get_execution_environment().options
    assert (options.engine, options.spark) == ("local", {"spark.master": "local[3]"})
    monkeypatch.setenv(variable_name, "spark")
    options = fp.StreamExecutionEnvironment.get_execution_environment().options
    assert (options.engine, options.spark.get("spark.master")) in [(None, "local[3]"), ("local", None)]


def test_a_run_takes_the_file_its_driver_in_the_background_too(cli, tmp_path):
    write(
        tmp_path,
        'state-root = "kept"\noutput = "json"\n\n[run]\nmax-parallelism = 16\ndetached = true\n\n'
        '[job]\nstate.backend.type = "hashmap"\nexecution.checkpointing.interval = "1 s"\n',
        "settings/forkpoint.toml",
    )
    cli.write("printing.py", PRINTING)
    started = json.loads(cli("--config", "settings/forkpoint.toml", "run", "printing.py").stdout)
    assert started["state_root"] == str(tmp_path / "settings" / "kept")
    assert Path(started["log"]).read_text().splitlines()[0] == "dict 1000 99"
    manifests = sorted((tmp_path / "settings" / "kept" / "jobs" / "printing" / "checkpoints").glob("*.json"))
    assert json.loads(manifests[-1].read_text())["max_parallelism"] == 16


def test_credentials_are_not_shown(place):
    write(place, "[run]\nconf = ['spark.secret=x1', 'spark.plain=x2']\n\n[job]\nspark.hadoop.fs.s3a.secret.key = 'x3'\n")
    text = invoke("config", "show").output + invoke("--output", "json", "config", "show").output
    assert "x1" not in text
    assert "x3" not in text
    assert "spark.plain=x2" in text


def test_completion_uses_the_state_root_of_the_file(place):
    from forkpoint.cli.names import state_root

    write(place, "state-root = 'kept'")
    assert state_root(None) == str(place / "kept")


@pytest.mark.parametrize("key", SETTABLE)
def test_every_job_option_and_its_variable_is_documented(key):
    assert f"| `{key}` |" in DOCS
    assert f"`{variable(key)}`" in DOCS


@pytest.mark.parametrize("option", [*general_options(main), *known_options(main)], ids=lambda option: option.name)
def test_every_option_of_the_command_line_can_be_told_by_the_rule(option):
    if not option.section:
        assert f"| `{option.key}` |" in DOCS
        assert f"`{option.variable}`" in DOCS
    else:  # the options themselves are in cli.md, which has a test of its own
        assert option.variable == f"FORKPOINT_{option.section}__{option.key}".upper().replace("-", "_").replace(".", "_")
        assert option.key == max(option.param.opts, key=len)[2:]


def variables_read():
    """The names of environment variables in the code, as far as it reads single ones."""
    read = re.compile(r"environ(?:\.get\(|\.setdefault\(|\.pop\(|\[)\s*([\"']?)(\w+)\1")
    constant = r"^{}\s*=\s*\"([A-Z][A-Z0-9_]+)\""
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text()
        for quote, name in read.findall(text):
            if quote:
                yield name
            elif name.strip("_").isupper():
                found = re.findall(constant.format(name), text, re.MULTILINE)
                imported = [
                    value
                    for each in (ROOT / "src").rglob("*.py")
                    if f"import {name}" in text or name in text
                    for value in re.findall(constant.format(name), each.read_text(), re.MULTILINE)
                ]
                yield from found or imported[:1]


# What shells and Spark give us, and what is set for our own processes.
NOT_SETTINGS = {
    "COMP_LINE",
    "COMP_POINT",
    "COMP_BREAKS",
    "_FORKPOINT_COMPLETE",
    "PYTHONPATH",
    "PYSPARK_DRIVER_PYTHON",
    "PYSPARK_SUBMIT_ARGS",
}


def test_every_environment_variable_that_is_read_is_documented():
    names = set(variables_read())
    assert {"FORKPOINT_STATE_ROOT", "FORKPOINT_ENGINE", "FORKPOINT_CONFIG", "SPARK_MASTER", "JAVA_HOME"} <= names
    assert not sorted(name for name in names - NOT_SETTINGS if f"`{name}`" not in DOCS)
