"""The HTML page about what the device has done, and the command that writes it about a script."""

import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import torch_lazyplug
from torch_lazyplug import debug, ir_cache
from torch_lazyplug.report import content, graph, sections
from torch_lazyplug.report.__main__ import main

pytestmark = [pytest.mark.lazy_only, pytest.mark.own_schedule("asserts what cuts a trace")]

VOID = {"meta", "input"}


class Page(html.parser.HTMLParser):
    """Checks that elements are closed, and collects the text, the links and the embedded data."""

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.words, self.count, self.scripts = [], [], [], {}, []
        self.feed(text)
        assert self.open == []
        self.text = " ".join(self.words)
        self.data = json.loads(self.scripts[0])

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        (self.scripts if inside == "script" else self.words).append(data)


@pytest.fixture
def write(tmp_path, debugging):
    def write():
        debug.report(tmp_path / "report.html")
        return tmp_path / "report.html"

    return write


@pytest.fixture
def page(write):
    return lambda: Page(write().read_text())


def train(steps=3):
    ir_cache.reset()
    model = torch.nn.Linear(3, 2).to("lazy")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        loss = model(torch.ones(4, 3, device="lazy")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
    model.weight.grad.nonzero()
    torch_lazyplug.mark_step(wait=True)


def test_what_happened_is_in_words_and_tables(page):
    train()
    written = page()
    parts = ("item", "aten::nonzero", "test_report.py:", "is like no graph", "Sync/item", "device_data", "ms")
    summary = ("waited", "runs on the CPU at once and waits", "loss.item()", "peak:", "optimizer.step()")
    for part in (*parts, *summary):
        assert part in written.text, part
    assert written.count["table"] >= 6 and written.count["polyline"] == 1 and written.count["path"] >= 1


def test_nothing_is_loaded(write):
    train()
    text = write().read_text()
    assert Page(text).links == []
    assert set(re.findall(r"https?://[^\s\"]+", text)) == {"http://www.w3.org/2000/svg"}


def test_the_script_gets_what_it_draws(page):
    train(3)
    data = page().data
    assert [step["number"] for step in data["steps"]] == [1, 2, 3, 4] and data["left_out"] == []
    assert all(step["recording"] > 0 for step in data["steps"][:3])
    kinds = {span[0] for span in data["spans"]}
    assert kinds == {"sync", "wait", "compile", "run", "fallback"}
    assert "MainThread" in data["rows"] and all(span[1] < len(data["rows"]) for span in data["spans"])
    assert sum(len(span[-1]) for span in data["spans"]) == sum(len(e["ops"]) for e in debug.events("run")) > 0
    for kind, _, start, duration, *_ in data["spans"]:
        assert start >= 0 and duration >= 0, kind


def test_the_last_graph_has_lines_and_times(page):
    x = torch.ones(4, device="lazy")
    (x.exp() * 2).sum().item()
    written = page()
    assert re.search(r"aten::exp\(.*Float\[4\].*test_report.py:\d+", written.text)
    assert "(x.exp() * 2).sum().item()" in written.text
    assert re.search(r"%\d+ = aten::exp\([^<]*?\d+\.\d{3} ms", written.text, flags=re.S)


def test_text_that_could_end_an_element(page, tmp_path):
    script = tmp_path / "odd.py"
    script.write_text('import torch\n(torch.ones(2).to("lazy") + 1).tolist()  # </script><b>&amp;\n')
    exec(compile(script.read_text(), str(script), "exec"), {})
    written = page()
    assert "# </script><b>&amp;" in written.text and "b" not in written.count
    assert any("# </script><b>&amp;" in text for text in written.data["texts"])


def test_what_is_left_out_is_said(page, monkeypatch):
    monkeypatch.setattr(content, "MAX_SPANS", 4)
    monkeypatch.setattr(content, "MAX_STEPS", 2)
    monkeypatch.setattr(content, "MAX_OPS", 1)
    monkeypatch.setattr(content, "MAX_TEXT", 10)
    monkeypatch.setattr(sections, "MAX_ROWS", 1)
    monkeypatch.setattr(sections, "MAX_COMPILES", 1)
    monkeypatch.setattr(sections, "MAX_POINTS", 3)
    monkeypatch.setattr(graph, "MAX_NODES", 1)
    train(4)
    torch.ones(5, device="lazy").exp().tolist()
    written = page()
    data = written.data
    assert len(data["spans"]) == 4 and len(data["steps"]) == 2 and sum(len(span[-1]) for span in data["spans"]) <= 1
    assert all(len(text) <= 14 for text in data["texts"])
    for what in (r"of \d+ events", r"of 5 steps", "the ops of", "more rows", "explanations", r"\d+ more nodes"):
        assert re.search(f"Left out: [^.]*{what}", written.text), what


def test_a_page_without_events_says_how_to_get_them(page):
    ir_cache.reset()
    debug.clear_events()
    written = page()
    assert "LAZYPLUG_DEBUG=1" in written.text and written.data["spans"] == []


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        debug.report(tmp_path / "none" / "report.html")


# python -m torch_lazyplug.report -------------------------------------------------------------------------------------

SCRIPT = """
    import os, sys, torch
    import beside
    assert __name__ == "__main__" and sys.modules["__main__"].__file__ == __file__
    (torch.ones(3).to("lazy") + 1).sum().item()
    print(sys.argv, beside.value)
    os.chdir("/")
"""


@pytest.fixture
def command(tmp_path):
    def run(ending, *arguments):
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(SCRIPT) + ending)
        (tmp_path / "beside.py").write_text("value = 17\n")
        env = {**os.environ, "PYTHONPATH": str(Path(torch_lazyplug.__file__).resolve().parents[1])}
        line = [sys.executable, "-m", "torch_lazyplug.report", *arguments]
        return subprocess.run(line, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    return run


ENDINGS = {
    "end": ("child = os.fork()\nif child == 0: sys.exit(0)\nos.waitpid(child, 0)\n", 0, ""),
    "exit": ("sys.exit(3)", 3, ""),
    "error": ("raise KeyError('why')", 1, "KeyError: 'why'"),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_script_ends_as_it_does_by_itself(name, command, tmp_path):
    ending, code, message = ENDINGS[name]
    done = command(ending, "-o", "page.html", "script.py", "-o", "x", "--flag")
    assert done.returncode == code, done.stderr
    assert done.stderr.count("wrote ") == 1  # not by the child
    assert message in done.stderr and done.stdout == "['script.py', '-o', 'x', '--flag'] 17\n"
    written = Page((tmp_path / "page.html").read_text())
    assert "script.py:5" in written.text and ".sum().item()" in written.text


def test_a_module(command, tmp_path):
    done = command("", "-m", "script", "a")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("'a'] 17\n")
    assert "script.py:5" in Page((tmp_path / "report.html").read_text()).text


@pytest.mark.parametrize("arguments", [["-o", "none/page.html", "script.py"], ["none.py"], []])
def test_wrong_arguments_are_found_before_a_script_runs(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("print('it ran')")
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    shown = capsys.readouterr()
    assert raised.value.code == 2 and "error: " in shown.err and shown.out == ""


# In a browser --------------------------------------------------------------------------------------------------------

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# What is added to the page: the result is in the title.
SELF_CHECK = """
<script>
const spans = () => document.querySelectorAll("#chart .span:not(.op)").length;
const title = () => document.getElementById("view").textContent;
const key = (element, name) => element.dispatchEvent(new KeyboardEvent("keydown", { key: name }));
const click = (element) => element.dispatchEvent(new MouseEvent("click"));
const result = { whole: [spans(), title()], steps: document.querySelectorAll(".step").length };
const step = document.querySelector('.step[data-step="2"]');
click(step);
result.step = [spans(), title()];
result.chosen = step.classList.contains("chosen");
click(document.querySelector("#chart .run"));
result.facts = document.getElementById("facts").textContent;
document.getElementById("chart").dispatchEvent(new WheelEvent("wheel", { deltaY: -1, clientX: 500 }));
result.zoomed = title();
click(document.querySelector("#timeline button"));
result.again = [spans(), title()];
const find = document.getElementById("find");
find.value = "aten::nonzero-like nothing";
find.dispatchEvent(new Event("input"));
result.found = document.getElementById("found").textContent;
key(document.querySelector(".node"), "Enter");
result.node = document.getElementById("node").textContent;
document.title = JSON.stringify(result);
</script>
"""


def browse(path, profile):
    """The page's title and what the browser's console says."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--enable-logging=stderr"]
    line = [BROWSER, *flags, "--v=0", "--dump-dom", path.as_uri()]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    title = re.search("<title>(.*?)</title>", done.stdout)[1]
    return html.unescape(title), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
def test_in_a_browser(write, tmp_path):
    train()
    path = write()
    path.write_text(path.read_text().replace("</body>", SELF_CHECK + "</body>"))
    title, console = browse(path, tmp_path / "profile")
    assert console == []
    result = json.loads(title)
    assert result["steps"] == 4 and result["chosen"]
    assert 0 < result["step"][0] < result["whole"][0] and result["step"][1] != result["whole"][1]
    assert result["facts"].startswith("run\ngraph\n") and "test_report.py:" in result["facts"]
    assert result["zoomed"] != result["step"][1] and result["again"] == result["whole"]
    assert result["found"].startswith("0 of ") and result["node"].startswith("%0 = ")


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
def test_errors_of_the_page_would_be_seen(write, tmp_path):
    path = write()
    path.write_text(path.read_text().replace("</body>", "<script>missing()</script></body>"))
    assert "missing is not defined" in browse(path, tmp_path / "profile")[1][0]
