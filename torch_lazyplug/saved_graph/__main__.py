"""``python -m torch_lazyplug.saved_graph FILE``: runs a saved graph, and prints results and the time."""

import argparse
import ctypes
import zlib

import torch

from torch_lazyplug.bisection.differences import describe_tensor
from torch_lazyplug.saved_graph import load_graph


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m torch_lazyplug.saved_graph", description=__doc__)
    parser.add_argument("file", help="what debug.save_graph has written")
    parser.add_argument("--repeat", type=int, default=20, help="how many runs the time is the median of")
    parser.add_argument("--text", action="store_true", help="print the graph, too")
    arguments = parser.parse_args()
    graph = load_graph(arguments.file)
    if arguments.text:
        print(graph.text)
    print(f"saved by PyTorch {graph.torch_version}, torch_lazyplug {graph.plugin_version}")
    for i, result in enumerate(graph.run()):
        print(f"result {i}: {describe_tensor(result)}, checksum {checksum(result):08x}")
    print(f"median of {arguments.repeat} runs: {graph.time(arguments.repeat) * 1e6:.1f} us")


def checksum(tensor: torch.Tensor) -> int:
    """CRC-32 of the elements in order, whatever the strides."""
    elements = tensor.resolve_conj().resolve_neg().contiguous()
    return zlib.crc32(ctypes.string_at(elements.data_ptr(), elements.nbytes))


if __name__ == "__main__":
    main()
