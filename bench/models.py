"""Small models shared by the benchmarks and the tests. Weights are random; nothing is downloaded."""

import torch

LAYERS, WIDTH, HEADS, VOCABULARY, TOKENS = 4, 128, 4, 256, 32


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
