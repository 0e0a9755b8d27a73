"""deploy/kubernetes: valid by the API, consistent in itself and with the project; the parts of the image that run here."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "deploy" / "kubernetes"
MANIFESTS = sorted(place for place in HOME.glob("*.yaml") if place.name != "kustomization.yaml")
DOCKERFILE = (HOME / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def documents() -> dict[tuple[str, str], dict[str, Any]]:
    """All resources by kind and name, and the executors' template as the Pod "executor"."""
    found = {}
    for place in MANIFESTS:
        for each in yaml.safe_load_all(place.read_text()):
            found[each["kind"], each["metadata"]["name"]] = each
    found["Pod", "executor"] = yaml.safe_load(found["ConfigMap", "flights-spark"]["data"]["executor.yaml"])
    return found


RESOURCES = documents()
DRIVER = RESOURCES["Deployment", "flights"]["spec"]["template"]
EXECUTOR = RESOURCES["Pod", "executor"]
PODS = [pytest.param(DRIVER, id="driver"), pytest.param(EXECUTOR, id="executor")]


def spark_settings() -> dict[str, str]:
    lines = RESOURCES["ConfigMap", "flights-spark"]["data"]["spark-defaults.conf"].splitlines()
    given = dict(line.split(None, 1) for line in lines if line.strip() and not line.startswith("#"))
    args = DRIVER["spec"]["containers"][0]["args"]
    return given | dict(args[i + 1].split("=", 1) for i, each in enumerate(args) if each == "--conf")


@pytest.mark.parametrize("key", RESOURCES, ids="/".join)
def test_each_resource_is_valid(key: tuple[str, str]) -> None:
    kubernetes_validate.validate(RESOURCES[key], kubernetes_validate.latest_version(), strict=True)


def test_the_validator_refuses_what_kubernetes_does_not_know() -> None:
    wrong = yaml.safe_load((HOME / "namespace.yaml").read_text()) | {"spec": {"replicas": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


def test_all_manifests_are_applied_but_the_example_of_a_secret() -> None:
    listed = yaml.safe_load((HOME / "kustomization.yaml").read_text())["resources"]
    assert sorted([*listed, "secret.example.yaml"]) == [place.name for place in MANIFESTS]


def test_everything_is_in_the_namespace() -> None:
    others = [each for each in RESOURCES.values() if each["kind"] not in ("Namespace", "Pod")]
    assert {each["metadata"]["namespace"] for each in others} == {"flights"}
    assert spark_settings()["spark.kubernetes.namespace"] == RESOURCES["Namespace", "flights"]["metadata"]["name"]


@pytest.mark.parametrize("pod", PODS)
def test_pods_refer_to_what_exists(pod: dict[str, Any]) -> None:
    (container,) = pod["spec"]["containers"]
    for variable in container["env"]:
        source = variable.get("valueFrom", {})
        if (ref := source.get("configMapKeyRef")) is not None:
            assert ref["key"] in RESOURCES["ConfigMap", ref["name"]]["data"]
        if (ref := source.get("secretKeyRef")) is not None:
            assert ref["key"] in RESOURCES["Secret", ref["name"]]["stringData"]
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    for volume in pod["spec"]["volumes"]:
        if "configMap" in volume:
            assert ("ConfigMap", volume["configMap"]["name"]) in RESOURCES


@pytest.mark.parametrize("pod", PODS)
def test_pods_are_allowed_in_a_restricted_namespace(pod: dict[str, Any]) -> None:
    assert RESOURCES["Namespace", "flights"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    of_pod, (container,) = pod["spec"]["securityContext"], pod["spec"]["containers"]
    assert of_pod["runAsNonRoot"]
    assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert re.search(r"^USER (\d+:\d+)$", DOCKERFILE, re.MULTILINE)[1] == f"{of_pod['runAsUser']}:{of_pod['runAsGroup']}"


def test_the_driver_may_start_executors() -> None:
    binding = RESOURCES["RoleBinding", "forkpoint-driver"]
    assert ("Role", binding["roleRef"]["name"]) in RESOURCES
    assert [each["name"] for each in binding["subjects"]] == [DRIVER["spec"]["serviceAccountName"]]
    assert ("ServiceAccount", DRIVER["spec"]["serviceAccountName"]) in RESOURCES
    account = spark_settings()["spark.kubernetes.authenticate.executor.serviceAccountName"]
    assert RESOURCES["ServiceAccount", account]["automountServiceAccountToken"] is False
    (rule,) = RESOURCES["Role", binding["roleRef"]["name"]]["rules"]
    assert {"pods", "configmaps"} <= set(rule["resources"])


def test_labels_select_the_pods_that_they_are_meant_for() -> None:
    deployment = RESOURCES["Deployment", "flights"]["spec"]
    drivers, executors = (RESOURCES["PodDisruptionBudget", f"flights-{each}"]["spec"] for each in ("drivers", "executors"))
    (spread,) = DRIVER["spec"]["topologySpreadConstraints"]
    labels = {"driver": DRIVER["metadata"]["labels"], "executor": EXECUTOR["metadata"]["labels"]}

    def pods(selector: dict[str, str]) -> list[str]:
        return [name for name, mine in labels.items() if selector.items() <= mine.items()]

    for selector in (deployment["selector"], drivers["selector"], spread["labelSelector"]):
        assert pods(selector["matchLabels"]) == ["driver"]
    assert pods(executors["selector"]["matchLabels"]) == ["executor"]
    assert drivers["maxUnavailable"] < deployment["replicas"]
    assert executors["minAvailable"] < deployment["replicas"] * int(spark_settings()["spark.executor.instances"])


def test_sparks_settings_fit_the_pods() -> None:
    settings, (container,) = spark_settings(), DRIVER["spec"]["containers"]
    assert settings["spark.kubernetes.container.image"] == container["image"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    variables = {each["name"]: each for each in container["env"]}
    assert variables["SPARK_CONF_DIR"]["value"] == mounts["spark-conf"]
    template = Path(settings["spark.kubernetes.executor.podTemplateFile"])
    assert str(template.parent) == mounts["spark-conf"]
    assert template.name in RESOURCES["ConfigMap", "flights-spark"]["data"]
    ports = {each["name"]: str(each["containerPort"]) for each in container["ports"]}
    assert ports == {"driver": settings["spark.driver.port"], "blocks": settings["spark.driver.blockManager.port"]}
    used = re.findall(r"\$\((\w+)\)", " ".join(container["args"]))
    assert set(used) <= variables.keys()
    # Or Spark would put its local directories, and we the stores, on the container's own file system.
    assert any(mount["name"].startswith("spark-local-dir-") for mount in EXECUTOR["spec"]["containers"][0]["volumeMounts"])


def test_the_probes_are_about_the_job_of_the_image() -> None:
    (container,) = DRIVER["spec"]["containers"]
    for probe, question in (("readinessProbe", "ready"), ("livenessProbe", "alive")):
        command = container[probe]["exec"]["command"]
        assert command[1:] == [question, "flights"]
        assert (HOME / Path(command[0]).name).stat().st_mode & 0o111


@pytest.mark.spark
def test_spark_knows_the_settings(session: Any) -> None:
    jvm = session.sparkContext._jvm
    for module in ("deploy.k8s.Config$", "internal.config.package$"):
        jvm.java.lang.Class.forName(f"org.apache.spark.{module}")
    known = getattr(jvm, "org.apache.spark.internal.config.ConfigEntry")
    for name in spark_settings():
        if name not in ("spark.master", "spark.pyspark.python"):
            assert known.findEntry(name) is not None, name


def test_the_image_takes_what_exists_and_what_is_locked() -> None:
    for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE):
        sources = [each for each in shlex.split(line) if not each.startswith("--")][:-1]
        assert sources
        for source in sources:
            assert (ROOT / source).exists(), source
    images = set(re.findall(r"^FROM python:(\d+\.\d+)-\S+", DOCKERFILE, re.MULTILINE))
    (python,) = images
    assert python in SpecifierSet(PROJECT["requires-python"])
    assert f"SPARK_HOME=/opt/forkpoint/lib/python{python}/site-packages/pyspark" in DOCKERFILE
    locked = {each["name"]: each.get("version") for each in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    assert re.search(r"uv==(\S+)", DOCKERFILE)[1] == locked["uv"]
    assert set(re.findall(r"--extra (\w+)", DOCKERFILE)) <= PROJECT["optional-dependencies"].keys()
    assert f"forkpoint:{PROJECT['version']}" in DOCKERFILE
    started = re.search(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE)[1]
    assert "/opt/bin/entrypoint.sh" in started


# -- what runs in the image


def probe(question: str, job: str, state_root: str) -> int:
    return subprocess.run(
        [sys.executable, HOME / "probe.py", question, job],
        env={**os.environ, "FORKPOINT_STATE_ROOT": state_root},
        capture_output=True,
    ).returncode


APP = """
import forkpoint as fp
env = fp.StreamExecutionEnvironment.get_execution_environment().enable_checkpointing(50)
numbers = env.from_source(fp.CounterSource(per_epoch=10), fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
numbers.sink_to(fp.DiscardSink()).uid("out")
env.execute("flights")
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "app.py").write_text(APP)
    command = [sys.executable, "-m", "forkpoint.cli", "--state-root", "state", "run", "--engine", "local", "app.py"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield process
    process.kill()
    process.wait()


@pytest.mark.slow
def test_the_probes_of_a_driver(driver: subprocess.Popen[bytes], tmp_path: Path) -> None:
    root = str(tmp_path / "state")
    while probe("ready", "flights", root):
        assert driver.poll() is None
        assert probe("alive", "flights", root) == 0  # it starts
        time.sleep(0.2)
    assert probe("alive", "flights", root) == 0
    assert probe("ready", "others", root) == 1

    driver.send_signal(signal.SIGSTOP)
    assert probe("alive", "flights", root) == 1
    assert probe("ready", "flights", root) == 1
    driver.send_signal(signal.SIGCONT)
    driver.terminate()
    assert driver.wait() == 143
    assert probe("ready", "flights", root) == 1


@pytest.mark.slow
def test_a_state_root_out_of_reach_is_no_reason_to_restart_the_driver() -> None:
    # Nothing listens there.
    root = "s3://state/root"
    answers = [
        subprocess.run(
            [sys.executable, HOME / "probe.py", question, "flights"],
            capture_output=True,
            env={
                **os.environ,
                "FORKPOINT_STATE_ROOT": root,
                "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
                "AWS_REGION": "x",
                "AWS_ACCESS_KEY_ID": "x",
                "AWS_SECRET_ACCESS_KEY": "x",
            },
        ).returncode
        for question in ("alive", "ready")
    ]
    assert answers == [0, 1]


@pytest.mark.skipif(
    subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True).returncode != 0,
    reason="needs namespaces",
)
def test_the_hook_before_a_pod_ends_kills_the_driver() -> None:
    hook = shlex.join(DRIVER["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"])
    script = f"sleep 1000 & driver=$!; {hook}; wait $driver; echo $?"
    done = subprocess.run(["unshare", "--pid", "--fork", "sh", "-c", script], capture_output=True, text=True)
    assert done.stdout == f"{128 + signal.SIGKILL}\n"


def test_the_entry_point_passes_other_commands_on() -> None:
    done = subprocess.run([HOME / "entrypoint.sh", "sh", "-c", "echo $0 $1", "a b", "c"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "a b c\n")


@pytest.mark.slow
@pytest.mark.spark
def test_the_entry_point_starts_an_executor_that_a_driver_accepts(tmp_path: Path) -> None:
    """The driver waits for executors of a standalone master, which has no workers; one from the entry point comes instead."""
    from standalone import SPARK_HOME, Cluster

    cluster = Cluster(tmp_path)
    (tmp_path / "driver.py").write_text("""
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master(sys.argv[1]).config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
sc = spark.getOrCreate().sparkContext
conf = sc.getConf()
print(conf.get("spark.driver.port"), sc.applicationId, conf.get("spark.executor.extraJavaOptions"), sep="\\n", flush=True)
print(sc.parallelize(range(10), 2).map(lambda n: n * n).sum(), flush=True)
""")
    driver = subprocess.Popen(
        [sys.executable, tmp_path / "driver.py", cluster.url], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    executor = None
    try:
        assert driver.stdout is not None
        port, application, options = (driver.stdout.readline().strip() for _ in range(3))
        settings = {
            "JAVA_HOME": os.environ["JAVA_HOME"],
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_EXECUTOR_MEMORY": "512m",
            "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{port}",
            "SPARK_EXECUTOR_ID": "1",
            "SPARK_EXECUTOR_CORES": "1",
            "SPARK_APPLICATION_ID": application,
            "SPARK_EXECUTOR_POD_IP": "127.0.0.4",
            "SPARK_RESOURCE_PROFILE_ID": "0",
            "SPARK_EXECUTOR_POD_NAME": "flights-exec-1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
            **{f"SPARK_JAVA_OPT_{i}": option for i, option in enumerate([*shlex.split(options), f"-Dspark.driver.port={port}"])},
        }
        with open(tmp_path / "executor.log", "wb") as log:
            executor = subprocess.Popen(
                [HOME / "entrypoint.sh", "executor"],
                env={**os.environ, **settings},
                stdout=log,
                stderr=log,
                cwd=tmp_path,
            )
        answer = driver.stdout.readline().strip()
        assert answer == "285", (tmp_path / "executor.log").read_text()
    finally:
        for process in (driver, executor):
            if process is not None:
                process.kill()
                process.wait()
        cluster.stop()
