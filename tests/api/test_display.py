"""Streams, environments, jobs and savepoints in notebooks: as HTML, which others' names cannot break, and as text."""

import time
from html.parser import HTMLParser
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

import forkpoint as fp
from forkpoint import operations
from forkpoint.state_processor import SavepointReader
from forkpoint.testing import Eof, run_local

NO_WATERMARKS = fp.WatermarkStrategy.no_watermarks()
EVIL = "<script>alert('x')</script>\u202e&\"\n"


class Reading(NamedTuple):
    sensor: str
    value: float


class Page(HTMLParser):
    """The elements and texts of a page. Fails for tags that are not closed."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.texts, self.rows, self.attributes, self._open = [], [], [], [], []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)
        if self._open and self._open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def svg(html):
    start, end = html.index("<svg"), html.index("</svg>") + len("</svg>")
    return ElementTree.fromstring(html[start:end])


def texts(drawing):
    return [element.text for element in drawing.iter("{http://www.w3.org/2000/svg}text") if element.text]


def alarms(env, name="read"):
    readings = env.from_collection([Reading("a", 1.5)], Reading).uid("readings").name(name)
    keyed = readings.key_by(lambda reading: reading.sensor, str)
    highest = keyed.max("value").uid("highest")
    return readings, keyed, highest


def check_offline_and_plain(html):
    page = Page(html)
    assert not {"script", "link", "img", "iframe", "style"} & set(page.tags)
    assert not [value for name, value in page.attributes if name.startswith("on") or name in ("href", "src")]
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")
    # The colours of what is around it, on light and dark pages.
    assert not any(f in html for f in ("background", "#000", "#fff", "black", "white"))
    return page


def test_a_stream_is_drawn_with_what_it_reads():
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    readings, keyed, highest = alarms(env)
    html = highest._repr_html_()
    check_offline_and_plain(html)
    drawn = texts(svg(html))
    assert {"read", "uid readings", "uid highest", "hash"} <= set(drawn)
    assert sum("sensor: string" in text for text in drawn) == 2
    assert repr(readings).startswith("<DataStream of Reading(sensor: string, value: ")
    assert repr(readings).endswith("from 'read', uid 'readings'>")
    assert repr(keyed).startswith("<KeyedStream of Reading(")
    assert "'read'" in repr(readings.union(readings.map(lambda r: r)))


def test_boxes_do_not_overlap_and_arrows_point_forward():
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    readings, _, highest = alarms(env)
    mapped = readings.map(lambda r: r.value, float).name("values")
    joined = mapped.union(highest.map(lambda r: r.value, float).name("values of the highest"))
    joined.print().uid("out")
    drawing = svg(env._repr_html_())
    boxes = [(int(r.get("x")), int(r.get("y"))) for r in drawing.iter("{http://www.w3.org/2000/svg}rect")]
    assert len(boxes) == len(set(boxes)) == 5
    assert max(x for x, _ in boxes) + 200 <= int(drawing.get("width"))
    assert len([p for p in drawing.iter("{http://www.w3.org/2000/svg}path") if p.get("fill") == "none"]) == 5
    assert repr(env) == "<StreamExecutionEnvironment with 5 operators>"


def test_an_empty_environment_and_a_loop():
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    assert "0 operators" in env._repr_html_()
    check_offline_and_plain(env._repr_html_())
    loop = env.from_collection([1, 2, 3], int).iterate()
    stepped = loop.map(lambda n: n - 1, int)
    loop.close_with(stepped.filter(lambda n: n > 0))
    stepped.print()
    assert texts(svg(env._repr_html_()))


def test_names_of_others_are_escaped():
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    _, _, highest = alarms(env, EVIL)
    html = highest._repr_html_()
    check_offline_and_plain(html)
    svg(html)
    assert "\u202e" not in html
    assert any(text.startswith("<script>alert(") for text in texts(svg(html)))
    assert "\n" not in repr(alarms(env, EVIL)[0])


@pytest.fixture
def endless(forkpoint_env):
    def start(name="endless"):
        numbers = forkpoint_env.from_source(fp.CounterSource(per_epoch=10), NO_WATERMARKS, EVIL).uid("numbers")
        numbers.sink_to(fp.DiscardSink()).uid("out")
        return forkpoint_env.execute_async(name)

    return start


def read(client):
    return client.job.driver.status().records.get("numbers", 0)


def test_a_running_job_is_a_table(endless):
    client = endless(EVIL.strip().replace("/", "|"))
    while read(client) == 0:
        time.sleep(0.01)
    page = check_offline_and_plain(client._repr_html_())
    assert page.rows[0] == ["operator", "name", "elements", "late, dropped", "watermark"]
    (numbers,) = [row for row in page.rows if row[0] == "numbers"]
    assert int(numbers[2].replace(" ", "")) > 0
    assert "RUNNING" in "".join(page.texts)
    assert "RUNNING" in repr(client)
    client.cancel().result()
    assert "CANCELED" in "".join(Page(client._repr_html_()).texts)


def job(env, source):
    numbers = env.from_source(source, NO_WATERMARKS, "numbers").uid("numbers")
    return numbers.key_by(lambda n: n % 2, int).reduce(lambda a, b: a + b).uid("sums")


def test_a_savepoint_shows_its_states(tmp_path):
    stopped = run_local(job, [1, 2, 3, Eof(savepoint=True)], state_root=tmp_path)
    reader = SavepointReader.read(stopped.savepoint)
    shown = operations.show(stopped.savepoint, state_root=str(tmp_path))
    assert reader._repr_html_() == shown._repr_html_()
    page = check_offline_and_plain(shown._repr_html_())
    assert page.rows[0][:3] == ["operator", "kind", "state"]
    (sums,) = [row for row in page.rows if row[0] == "sums"]
    assert (sums[2], sums[5]) == ("state", "2")
    assert sums[6].endswith("B")
    assert repr(reader) == f"<SavepointReader of {shown.savepoint.id}, job 'test', epoch {shown.savepoint.epoch}>"


class Kernel:
    """What a kernel sends to the notebook."""

    def __init__(self):
        self.shown, self.updates = [], []

    def publish(self, data, metadata=None, *, transient=None, update=False, **_):
        (self.updates if update else self.shown).append((transient, data))


@pytest.fixture
def shell(monkeypatch):
    """IPython's shell, as in a notebook."""
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    shell = interactive.InteractiveShell.instance()
    shell.kernel = object()
    sent = Kernel()
    monkeypatch.setattr(shell, "display_pub", sent)
    yield shell, sent
    interactive.InteractiveShell.clear_instance()


def test_in_ipython_streams_have_a_drawing_and_a_text(shell):
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    formats, _ = shell[0].display_formatter.format(alarms(env)[2])
    assert formats["text/html"].count("<rect") == 2
    assert formats["text/plain"].startswith("<DataStream of Reading(")


def test_in_ipython_a_jobs_table_is_updated_until_it_ends(shell, endless, monkeypatch):
    monkeypatch.setattr("forkpoint.api.display._UPDATE_SECONDS", 0.05)
    client = endless()
    formats, _ = shell[0].display_formatter.format(client)
    assert formats == {}  # it has displayed itself
    ((place, data),) = shell[1].shown
    assert "<table" in data["text/html"]
    while len(shell[1].updates) < 3:
        time.sleep(0.01)
    client.cancel().result()
    while "CANCELED" not in shell[1].updates[-1][1]["text/plain"]:
        time.sleep(0.01)
    assert {each["display_id"] for each, _ in shell[1].updates} == {place["display_id"]}
    count = len(shell[1].updates)
    time.sleep(0.2)
    assert len(shell[1].updates) == count


def test_a_terminal_shows_a_job_once(shell, endless, monkeypatch):
    monkeypatch.setattr("forkpoint.api.display._UPDATE_SECONDS", 0.01)
    del shell[0].kernel
    shell[0].display_formatter.format(endless())
    time.sleep(0.1)
    assert len(shell[1].shown) == 1
    assert shell[1].updates == []
