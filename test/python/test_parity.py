"""Everything of `parity`, on the lazy device; and the document that is generated from it."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from parity import PROBES

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.lazy_only


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: f"{probe.group}: {probe.text}")
def test_probe(probe):
    probe.check("lazy", torch.lazy)


def test_there_are_enough_probes():
    assert len(PROBES) >= 120
    assert len({(probe.group, probe.text) for probe in PROBES}) == len(PROBES)


def test_names_that_are_missing_have_a_reason():
    sys.path.insert(0, str(ROOT / "tools"))
    import generate_parity_doc

    explained = {name for names in generate_parity_doc.MISSING.values() for name in names.split()}
    missing = {name for name in (*torch.cuda.__all__, *torch.cuda.memory.__all__) if not hasattr(torch.lazy, name)}
    assert missing <= explained, missing - explained


def test_the_document_is_up_to_date():
    command = [sys.executable, str(ROOT / "tools" / "generate_parity_doc.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
