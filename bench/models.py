"""Models, whose training and inference is compared with eager (`steps.py`).

Weights are random; nothing is downloaded. The transformers are used by the tests, too.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, HEADS, VOCABULARY, TOKENS, CLASSES = 4, 128, 4, 256, 32, 10


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=LAYERS,
        n_embd=WIDTH,
        n_head=HEADS,
        vocab_size=VOCABULARY,
        n_positions=TOKENS,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def bert():
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        num_hidden_layers=LAYERS,
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        vocab_size=VOCABULARY,
        max_position_embeddings=TOKENS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return BertForMaskedLM(config)


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_hidden_layers=LAYERS,
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        intermediate_size=2 * WIDTH,
        vocab_size=VOCABULARY,
        max_position_embeddings=TOKENS,
        tie_word_embeddings=True,
        attention_dropout=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return LlamaForCausalLM(config)


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        num_hidden_layers=LAYERS,
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        image_size=32,
        patch_size=8,
        num_labels=10,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return ViTForImageClassification(config)


TRANSFORMERS = {"gpt2": gpt2, "bert": bert, "llama": llama, "vit": vit}


def make_transformer(name, seed=0):
    torch.manual_seed(seed)
    return TRANSFORMERS[name]().train()


def make_batch(name, batch_size=4, seed=0):
    """Keyword arguments for the model's forward, on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    if name == "vit":
        images = torch.randn(batch_size, 3, 32, 32, generator=generator)
        return {"pixel_values": images, "labels": torch.randint(10, (batch_size,), generator=generator)}
    tokens = torch.randint(VOCABULARY, (batch_size, TOKENS), generator=generator)
    return {"input_ids": tokens, "labels": tokens.clone()}


# Networks that are written here ---------------------------------------------------------------------------------------


class Classifier(nn.Module):
    """Gives a network of logits the interface of transformers' models."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, inputs, labels=None):
        logits = self.body(inputs)
        return SimpleNamespace(logits=logits, loss=None if labels is None else F.cross_entropy(logits, labels))


def mlp(width):
    return nn.Sequential(
        nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES)
    )


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, CLASSES),
    )  # fmt: skip


class Block(nn.Module):
    """Two convolutions, and a way around them."""

    def __init__(self, before, after):
        super().__init__()
        stride = 1 if before == after else 2
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip
        around = (nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        self.around = nn.Identity() if before == after else nn.Sequential(*around)

    def forward(self, x):
        return (self.body(x) + self.around(x)).relu()


def resnet18():
    """Four stages of two blocks, with a quarter of the original's channels."""
    blocks, before = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()], 16
    for width in (16, 32, 64, 128):
        blocks += [Block(before, width), Block(width, width)]
        before = width
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES))


class LstmCells(nn.Module):
    """One cell, twenty times."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTMCell(32, 64), nn.Linear(64, CLASSES)

    def forward(self, sequence):
        state = None
        for x in sequence.unbind(1):
            state = self.cell(x, state)
        return self.head(state[0])


class Gates(nn.Module):
    """Blocks that do little to much memory: norms, gates, and a sum."""

    def __init__(self, width=1024, blocks=4):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(blocks))
        self.scales = nn.ParameterList(torch.randn(3, width) for _ in range(blocks))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        for norm, scale in zip(self.norms, self.scales, strict=True):
            y = norm(x)
            x = x + torch.sigmoid(y * scale[0]) * torch.tanh(y * scale[1]) + F.silu(y * scale[2]) * y
        return self.head(x)


class Decoder(nn.Module):
    """A language model of one layer, which is given the keys and values of the tokens so far."""

    def __init__(self, vocabulary=256, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(vocabulary, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, token, cache):
        x = self.embed(token)
        parts = self.project(self.norms[0](x)).chunk(3, -1)
        query, *fresh = (part.view(len(x), 1, self.heads, -1).transpose(1, 2) for part in parts)
        cache = [torch.cat(pair, 2) for pair in zip(cache, fresh, strict=True)]
        x = x + self.out(F.scaled_dot_product_attention(query, *cache).transpose(1, 2).reshape(len(x), 1, -1))
        return self.head(x + self.feed(self.norms[1](x))), cache

    def empty_cache(self, rows, device, tokens=0):
        return [torch.zeros(rows, self.heads, tokens, 16, device=device) for _ in range(2)]


def digits():
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
    import train_digits

    return train_digits.make_model(0)


# The network, and the shape of its inputs.
NETWORKS = {
    "MLP 32, batch 8": (lambda: mlp(32), (8, 32)),
    "MLP 256, batch 64": (lambda: mlp(256), (64, 256)),
    "MLP 1024, batch 256": (lambda: mlp(1024), (256, 1024)),
    "LeNet": (lenet, (32, 1, 28, 28)),
    "digits network": (digits, (64, 1, 8, 8)),
    "ResNet-18": (resnet18, (8, 3, 32, 32)),
    "LSTM cells": (LstmCells, (16, 20, 32)),
    "gated blocks": (Gates, (256, 1024)),
}
TITLES = {"gpt2": "GPT-2", "bert": "BERT", "llama": "Llama", "vit": "ViT"}
ALL = [*NETWORKS, *TITLES.values()]


def build(title):
    """A model, and the keyword arguments of its forward, `labels` among them, on the CPU."""
    for name, known in TITLES.items():
        if known == title:
            return make_transformer(name), make_batch(name)
    make, shape = NETWORKS[title]
    torch.manual_seed(0)
    return Classifier(make()), {"inputs": torch.randn(shape), "labels": torch.randint(CLASSES, shape[:1])}
