"""The HTML page about a step."""

import html.parser

import pytest
import torch

import torch_lazyplug
from torch_lazyplug import config, debug, ir_cache

pytestmark = pytest.mark.lazy_only

VOID = {"meta", "rect", "circle", "path"}


class Page(html.parser.HTMLParser):
    """Checks that elements are closed, and collects the text and the links."""

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.words, self.count = [], [], [], {}
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if tag not in VOID or tag == "rect":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture
def page(tmp_path):
    def write():
        debug.report(tmp_path / "report.html")
        return Page((tmp_path / "report.html").read_text())

    return write


def test_a_step_is_drawn(page):
    ir_cache.reset()
    config.set_debug(True)
    debug.clear_events()
    try:
        model = torch.nn.Linear(3, 2).to("lazy")
        loss = model(torch.ones(4, 3, device="lazy")).square().mean()
        loss.backward()
        loss.item()
        model.weight.grad.nonzero()
        torch_lazyplug.mark_step(wait=True)
        drawn = page()
    finally:
        config.set_debug(False)
        debug.clear_events()
    text = " ".join(drawn.words)
    for part in ("item", "aten::nonzero", "test_report.py:", "is like no graph", "Sync/item", "device_data", "ms"):
        assert part in text, part
    assert drawn.links == [] and "script" not in drawn.count
    assert drawn.count["rect"] >= 5 and drawn.count["path"] >= 1


def test_a_page_without_events_says_how_to_get_them(page):
    ir_cache.reset()
    debug.clear_events()
    assert "LAZYPLUG_DEBUG=1" in " ".join(page().words)


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        debug.report(tmp_path / "none" / "report.html")
