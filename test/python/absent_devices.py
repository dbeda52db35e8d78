"""Devices that this machine does not have, and PyTorch does not leave alone."""

import torch


def _ignore(seed):
    pass


def leave_unseeded():
    """`torch.manual_seed` keeps a call for each, with a stack, until somebody uses the device: 1 ms, and for ever."""
    for absent in (torch.cuda, torch.mtia, torch.xpu):
        absent.manual_seed_all = _ignore
