"""Models of other people's libraries, small: transformers and, where it is installed, diffusers.

Weights are random; nothing is downloaded. No two of these families are built alike: dense and sparse language models,
encoders and decoders, attention in windows, scans, plain, grouped and depthwise convolutions.
"""

import functools
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import registry
import torch
from kinds import descend

BATCH, TOKENS, TARGETS, WORDS, PIXELS = 4, 32, 16, 500, 64


def _words(length: int = TOKENS) -> torch.Tensor:
    return torch.randint(WORDS, (BATCH, length))


def _images() -> dict:
    return {"pixel_values": torch.randn(BATCH, 3, PIXELS, PIXELS)}


def _text() -> dict:
    return {"input_ids": _words()}


def _text_pair() -> dict:
    return {"input_ids": _words(), "decoder_input_ids": _words(TARGETS)}


def _speech() -> dict:
    return {"input_features": torch.randn(BATCH, 40, 100), "decoder_input_ids": _words(TARGETS)}


def _noise() -> dict:
    return {"sample": torch.randn(BATCH, 3, 16, 16), "timestep": torch.tensor([3, 5, 7, 9])}


_WIDE = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
_NARROW = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
_PATCHES = {"image_size": PIXELS, "patch_size": 8, "intermediate_size": 512}


@dataclass(frozen=True)
class Model:
    """A class of a library, made of what its configuration, or it itself, is told."""

    name: str
    options: dict
    inputs: Callable[[], dict]
    library: str = "transformers"

    def make(self) -> torch.nn.Module:
        model = getattr(importlib.import_module(self.library), self.name)
        return model(**self.options) if self.library == "diffusers" else model(model.config_class(**self.options))


MODELS = {
    "BERT": Model("BertModel", {**_WIDE, "vocab_size": WORDS, "intermediate_size": 512}, _text),
    "DeBERTa": Model(
        "DebertaV2Model",
        {**_NARROW, "vocab_size": WORDS, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
        _text,
    ),
    "GPT-2": Model("GPT2LMHeadModel", {"vocab_size": WORDS, "n_embd": 128, "n_layer": 3, "n_head": 4}, _text),
    "Llama": Model("LlamaForCausalLM", {**_WIDE, "vocab_size": WORDS, "intermediate_size": 352}, _text),
    "Mixtral": Model(
        "MixtralModel", {**_NARROW, "vocab_size": WORDS, "num_key_value_heads": 2, "num_local_experts": 4}, _text
    ),
    "Mamba": Model(
        "MambaModel", {"vocab_size": WORDS, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8}, _text
    ),
    "T5": Model(
        "T5Model",
        {"vocab_size": WORDS, "d_model": 128, "d_ff": 256, "num_layers": 2, "num_heads": 4, "d_kv": 32},
        _text_pair,
    ),
    "Whisper": Model(
        "WhisperModel",
        {
            "vocab_size": WORDS,
            "d_model": 128,
            "num_mel_bins": 40,
            "max_source_positions": 50,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
            **{f"{part}_layers": 2 for part in ("encoder", "decoder")},
            **{f"{part}_attention_heads": 4 for part in ("encoder", "decoder")},
            **{f"{part}_ffn_dim": 256 for part in ("encoder", "decoder")},
        },
        _speech,
    ),
    "ViT": Model("ViTModel", {**_WIDE, **_PATCHES}, _images),
    "CLIP": Model("CLIPVisionModel", {**_WIDE, **_PATCHES}, _images),
    "Swin": Model(
        "SwinModel",
        {
            "image_size": PIXELS,
            "patch_size": 4,
            "embed_dim": 32,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
        },
        _images,
    ),
    "SegFormer": Model("SegformerModel", {"hidden_sizes": [16, 32, 64, 128], "depths": [1, 1, 1, 1]}, _images),
    "ConvNeXt": Model("ConvNextModel", {"hidden_sizes": [32, 64, 128], "depths": [2, 2, 2], "num_stages": 3}, _images),
    "ResNet of bottlenecks": Model(
        "ResNetModel", {"embedding_size": 32, "hidden_sizes": [64, 128, 256], "depths": [2, 2, 2]}, _images
    ),
    "MobileNet": Model("MobileNetV2Model", {"image_size": PIXELS, "depth_multiplier": 0.5}, _images),
    "U-Net": Model(
        "UNet2DModel",
        {
            "sample_size": 16,
            "layers_per_block": 1,
            "block_out_channels": (32, 64),
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
            "norm_num_groups": 8,
        },
        _noise,
        "diffusers",
    ),
    "latent autoencoder": Model(
        "AutoencoderKL",
        {
            "block_out_channels": (16, 32),
            "down_block_types": ("DownEncoderBlock2D", "DownEncoderBlock2D"),
            "up_block_types": ("UpDecoderBlock2D", "UpDecoderBlock2D"),
            "norm_num_groups": 8,
        },
        lambda: {"sample": torch.randn(BATCH, 3, 32, 32)},
        "diffusers",
    ),
}


def _build(title: str, device: str) -> tuple[torch.nn.Module, Callable[[], torch.Tensor]]:
    """The model, and what it answers to inputs that are moved at each step, as a loader's batches are."""
    torch.manual_seed(0)
    model = MODELS[title].make().to(device)
    inputs = MODELS[title].inputs()

    def forward() -> torch.Tensor:
        return model(**{name: tensor.to(device) for name, tensor in inputs.items()})[0]

    return model, forward


def inference(title: str, device: str) -> Callable:
    """A batch, of whose answers the sum is read."""
    model, forward = _build(title, device)
    model.eval()

    @torch.no_grad()
    def step() -> float:
        return forward().sum().item()

    return step


def training(title: str, device: str) -> Callable:
    """A step with AdamW, whose loss, the mean of the squares of what the model answers, is read."""
    model, forward = _build(title, device)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> float:
        loss = forward().square().mean()
        descend(optimizer, loss)
        return loss.item()

    return step


def register() -> None:
    for title, model in MODELS.items():
        if importlib.util.find_spec(model.library):
            registry.add(f"{title} of {model.library}, inference", functools.partial(inference, title))
            registry.add(f"{title} of {model.library}, training", functools.partial(training, title))


register()
