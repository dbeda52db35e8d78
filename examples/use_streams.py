"""Streams and events: order work explicitly, and time it.

    python examples/use_streams.py

A stream is a queue of work. What is recorded on two streams may overlap; events tell one stream to wait for another,
and measure how long the device was busy between two places.
"""

import torch


def main():
    side = torch.lazy.Stream()
    start, end = (torch.lazy.Event(enable_timing=True) for _ in range(2))
    x = torch.randn(256, 256, device="lazy")

    start.record()
    main_result = (x @ x).sum()

    side.wait_stream(torch.lazy.current_stream())  # `side` needs x
    with torch.lazy.stream(side):
        side_result = (x * x).sum()
        done = side.record_event()

    torch.lazy.current_stream().wait_event(done)  # from here on, side_result may be used
    total = main_result + side_result
    end.record()

    end.synchronize()
    print(f"x @ x and x * x sum up to {total.item():.2f}; the device took {start.elapsed_time(end):.2f} ms")
    assert torch.allclose(total.cpu(), (x.cpu() @ x.cpu()).sum() + (x.cpu() ** 2).sum(), rtol=1e-3)


if __name__ == "__main__":
    main()
