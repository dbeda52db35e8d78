"""Words, sounds and other sequences."""

import math
import random

import torch
import torch.nn.functional as F
from models import Decoder
from registry import case
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from kinds import descend


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 16)
        self.lstm = nn.LSTM(16, 32, batch_first=True, bidirectional=True)
        self.out = nn.Linear(64, 5)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embed(words), lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.out(states)


@case("LSTM on packed sequences")
def packed_lstm(device):
    """Lengths, and the longest of them, change every step."""
    model, chance = Tagger().to(device), random.Random(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step():
        lengths = [chance.randint(2, 12) for _ in range(8)]
        words = pad_sequence([torch.randint(1, 100, (n,)) for n in lengths], batch_first=True)
        labels = pad_sequence([torch.randint(5, (n,)) for n in lengths], batch_first=True, padding_value=-1)
        logits = model(words.to(device), lengths)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.to(device).flatten(), ignore_index=-1)
        descend(optimizer, loss)
        return loss.item()

    return step


@case("GRU language model", rtol=1e-5)  # the gradients of GRUs are rounded differently
def gru_language_model(device):
    """The hidden state is carried from step to step; every tenth loss is read."""
    embed, gru, head = nn.Embedding(80, 32).to(device), nn.GRU(32, 64).to(device), nn.Linear(64, 80).to(device)
    parameters = [*embed.parameters(), *gru.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.5)
    state, steps = torch.zeros(1, 8, 64, device=device), 0

    def step():
        nonlocal state, steps
        text = torch.randint(80, (17, 8)).to(device)
        states, state = gru(embed(text[:-1]), state.detach())
        loss = F.cross_entropy(head(states).flatten(0, 1), text[1:].flatten())
        descend(optimizer, loss, max_norm=1.0)
        steps += 1
        return math.exp(loss.item()) if steps % 10 == 0 else None

    return step


@case("speech with CTC")
def ctc(device):
    chance = random.Random(0)
    network = nn.Sequential(nn.Conv1d(13, 32, 3, padding=1), nn.ReLU(), nn.Conv1d(32, 20, 3, padding=1)).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    criterion = nn.CTCLoss(zero_infinity=True)

    def step():
        sounds = torch.randn(4, 13, 40).to(device)
        targets = torch.randint(1, 20, (4, 10)).to(device)
        lengths = torch.tensor([chance.randint(30, 40) for _ in range(4)])
        target_lengths = torch.tensor([chance.randint(3, 10) for _ in range(4)])
        log_probs = network(sounds).permute(2, 0, 1).log_softmax(-1)
        loss = criterion(log_probs, targets, lengths, target_lengths)
        descend(optimizer, loss)
        return loss.item()

    return step


@case()
def embedding_bag(device):
    """Texts of varying length, as a list of words and offsets."""
    chance = random.Random(0)
    bag, head = nn.EmbeddingBag(500, 32).to(device), nn.Linear(32, 4).to(device)
    optimizer = torch.optim.SGD([*bag.parameters(), *head.parameters()], lr=1.0)

    def step():
        texts = [[chance.randrange(500) for _ in range(chance.randint(3, 30))] for _ in range(32)]
        words = torch.tensor([word for text in texts for word in text], device=device)
        offsets = torch.tensor([0, *(len(text) for text in texts[:-1])]).cumsum(0).to(device)
        labels = torch.tensor([chance.randrange(4) for _ in texts], device=device)
        loss = F.cross_entropy(head(bag(words, offsets)), labels)
        descend(optimizer, loss)
        return loss.item()

    return step


@case("mixture of experts, by masks")
def mixture_of_experts(device):
    """Each expert takes the rows that chose it: how many depends on data."""
    experts = nn.ModuleList(nn.Linear(32, 32) for _ in range(4)).to(device)
    gate, head = nn.Linear(32, 4).to(device), nn.Linear(32, 1).to(device)
    optimizer = torch.optim.Adam([*experts.parameters(), *gate.parameters(), *head.parameters()], lr=1e-3)

    def step():
        x = torch.randn(64, 32).to(device)
        weight, chosen = gate(x).softmax(-1).max(-1)
        mixed = torch.zeros_like(x)
        for number, expert in enumerate(experts):
            mask = chosen == number
            if mask.any():
                mixed[mask] = expert(x[mask]) * weight[mask][:, None]
        loss = (head(mixed).squeeze(1) - x.sum(1)).square().mean()
        descend(optimizer, loss)
        return loss.item()

    return step


@case("mixture of experts, top 2")
def top_k_routing(device):
    """All experts see all rows; two are kept for each."""
    up, down = (torch.randn(8, 32, 64) / 6).to(device), (torch.randn(8, 64, 32) / 8).to(device)
    up.requires_grad_()
    down.requires_grad_()
    gate = nn.Linear(32, 8).to(device)
    optimizer = torch.optim.AdamW([up, down, *gate.parameters()], lr=1e-3)

    def step():
        x = torch.randn(64, 32).to(device)
        scores = gate(x).softmax(-1)
        best, chosen = scores.topk(2, -1)
        weight = torch.zeros_like(scores).scatter(1, chosen, best / best.sum(-1, keepdim=True))
        results = torch.einsum("eti,eio->eto", F.gelu(torch.einsum("ti,eio->eto", x, up)), down)
        mixed = torch.einsum("te,eto->to", weight, results)
        share = F.one_hot(chosen, 8).float().sum(1).mean(0)
        loss = F.mse_loss(mixed, x.flip(1)) + 0.01 * 8 * (share * scores.mean(0)).sum()
        descend(optimizer, loss)
        return loss.item()

    return step


@case("greedy decoding with a cache", warm_up=20)
def greedy_decoding(device):
    """One answer of 5 to 30 tokens."""
    model, chance = Decoder().to(device).eval(), random.Random(0)

    @torch.no_grad()
    def step():
        token, cache = torch.tensor([[chance.randrange(256)]], device=device), model.empty_cache(1, device)
        answer = []
        for _ in range(chance.randint(5, 30)):
            logits, cache = model(token, cache)
            token = logits.argmax(-1)
            answer.append(token.item())
        return answer

    return step


@case("beam search", warm_up=20)
def beam_search(device):
    model = Decoder(vocabulary=64).to(device).eval()

    @torch.no_grad()
    def step():
        tokens = torch.randint(64, (1, 1)).to(device).repeat(4, 1)
        cache, scores = model.empty_cache(4, device), torch.tensor([0.0, -1e9, -1e9, -1e9], device=device)
        for _ in range(10):
            logits, cache = model(tokens[:, -1:], cache)
            total = scores[:, None] + logits[:, 0].log_softmax(-1)
            scores, best = total.flatten().topk(4)
            beam, word = best // 64, best % 64
            tokens = torch.cat([tokens[beam], word[:, None]], 1)
            cache = [part[beam] for part in cache]
        return tokens[0].tolist()

    return step


@case("sampling text, top p", warm_up=20, random=True)
def sampling(device):
    model = Decoder(vocabulary=64).to(device).eval()

    @torch.no_grad()
    def step():
        token, cache, text = torch.zeros(1, 1, dtype=torch.long, device=device), model.empty_cache(1, device), []
        for _ in range(16):
            logits, cache = model(token, cache)
            chances, order = (logits[0, 0] / 0.8).softmax(-1).sort(descending=True)
            chances = chances.masked_fill(chances.cumsum(0) - chances > 0.9, 0.0)
            token = order[torch.multinomial(chances, 1)][None]
            text.append(token.item())
        return text

    return step


def encoder(device):
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2).to(device), nn.Embedding(100, 32).to(device), nn.Linear(32, 2).to(device)


@case()
def transformer_encoder_training(device):
    """Padded to the longest of each batch, with a mask."""
    model, embed, head = encoder(device)
    chance = random.Random(0)
    parameters = [*model.parameters(), *embed.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)

    def step():
        lengths = torch.tensor([chance.randint(4, 16) for _ in range(8)])
        words = torch.randint(100, (8, int(lengths.max()))).to(device)
        padding = (torch.arange(words.shape[1])[None] >= lengths[:, None]).to(device)
        states = model(embed(words), src_key_padding_mask=padding)
        kept = (~padding)[:, :, None]
        logits = head((states * kept).sum(1) / kept.sum(1))
        loss = F.cross_entropy(logits, torch.randint(2, (8,)).to(device))
        descend(optimizer, loss)
        return loss.item()

    return step


@case()
def transformer_encoder_inference(device):
    """Without gradients PyTorch takes its fast path."""
    model, embed, head = encoder(device)
    model.eval()

    @torch.inference_mode()
    def step():
        words = torch.randint(100, (8, 16)).to(device)
        return head(model(embed(words)).mean(1)).softmax(-1).tolist()

    return step


@case("translation with attention", warm_up=30, rtol=1e-5)  # the gradients of GRU cells are rounded differently
def translation(device):
    """A GRU cell that looks back at the source, fed with the truth or with its own words."""
    chance = random.Random(0)
    embed, reader, cell = nn.Embedding(60, 32), nn.GRU(32, 32, batch_first=True), nn.GRUCell(64, 32)
    model = nn.ModuleList([embed, reader, cell, nn.Linear(64, 60)]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step():
        source, target = torch.randint(60, (8, 10)).to(device), torch.randint(60, (8, 7)).to(device)
        states, last = reader(embed(source))
        hidden, word, loss = last[0], torch.zeros(8, dtype=torch.long, device=device), 0.0
        for t in range(7):
            weight = torch.einsum("bh,bth->bt", hidden, states).softmax(-1)
            seen = torch.einsum("bt,bth->bh", weight, states)
            hidden = cell(torch.cat([embed(word), seen], 1), hidden)
            logits = model[3](torch.cat([hidden, seen], 1))
            loss = loss + F.cross_entropy(logits, target[:, t])
            word = target[:, t] if chance.random() < 0.5 else logits.argmax(1)
        descend(optimizer, loss)
        return loss.item() / 7

    return step


@case()
def forecasting(device):
    """Dilated causal convolutions on a series."""
    layers = nn.ModuleList(nn.Conv1d(1 if d == 1 else 16, 16, 2, dilation=d) for d in (1, 2, 4, 8)).to(device)
    head = nn.Conv1d(16, 1, 1).to(device)
    optimizer = torch.optim.Adam([*layers.parameters(), *head.parameters()], lr=1e-3)

    def step():
        start = torch.rand(16, 1) * 10
        series = (start + 0.2 * torch.arange(65)).sin().unsqueeze(1).to(device)
        x = series[:, :, :-1]
        for layer in layers:
            x = F.pad(x, (layer.dilation[0], 0))
            x = layer(x).relu()
        loss = F.l1_loss(head(x), series[:, :, 1:])
        descend(optimizer, loss)
        return loss.item()

    return step


@case("Viterbi decoding")
def viterbi(device):
    moves = torch.randn(12, 12).log_softmax(1).to(device)

    @torch.no_grad()
    def step():
        scores = torch.randn(40, 12).log_softmax(1).to(device)
        best, back = scores[0], []
        for t in range(1, 40):
            best, before = (best[:, None] + moves).max(0)
            best = best + scores[t]
            back.append(before)
        path = [best.argmax().item()]
        for before in reversed(back):
            path.append(before[path[-1]].item())
        return path[::-1]

    return step


@case()
def conditional_random_field(device):
    """All paths through fifteen labels, summed up in logarithms."""
    moves, emit = nn.Parameter((0.1 * torch.randn(5, 5)).to(device)), nn.Linear(8, 5).to(device)
    optimizer = torch.optim.Adam([moves, *emit.parameters()], lr=1e-2)

    def step():
        x, labels = torch.randn(16, 15, 8), torch.randint(5, (16, 15))
        scores, labels = emit(x.to(device)), labels.to(device)
        total = scores[:, 0]
        for t in range(1, scores.shape[1]):
            total = torch.logsumexp(total[:, :, None] + moves, 1) + scores[:, t]
        right = scores.gather(-1, labels[..., None]).sum((1, 2)) + moves[labels[:, :-1], labels[:, 1:]].sum(1)
        loss = (total.logsumexp(-1) - right).mean()
        descend(optimizer, loss)
        return loss.item()

    return step


class Block(nn.Module):
    """A block of a transformer that looks back only."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        layers = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1)
        self.think = nn.Sequential(*layers)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.attend(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.think(self.between(x))


@case("language model with tied weights", random=True)  # dropout
def language_model_with_tied_weights(device):
    """Batches are cut out of one text; gradients are clipped, and the rate follows a cosine."""
    words, places = nn.Embedding(100, 64), nn.Parameter(torch.zeros(32, 64))
    model = nn.ModuleDict({"words": words, "blocks": nn.Sequential(Block(64, 4), Block(64, 4))})
    model.register_parameter("places", places)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
    text, chance = torch.randint(100, (5000,)), random.Random(0)

    def step():
        parts = torch.stack([text[i : i + 33] for i in (chance.randrange(4900) for _ in range(8))]).to(device)
        hidden = model["blocks"](model["words"](parts[:, :-1]) + model.places)
        loss = F.cross_entropy(F.linear(hidden, model["words"].weight).flatten(0, 1), parts[:, 1:].flatten())
        descend(optimizer, loss, max_norm=1.0)
        schedule.step()
        return loss.item()

    return step


@case("forecasting from windows")
def forecasting_from_windows(device):
    """Windows of one long series, wherever they begin."""
    chance, series = random.Random(0), torch.randn(2000, 4).cumsum(0).to(device)
    model = nn.Sequential(nn.Flatten(), nn.Linear(96, 64), nn.GELU(), nn.Linear(64, 32)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step():
        starts = [chance.randrange(1960) for _ in range(8)]
        past = torch.stack([series[start : start + 24] for start in starts])
        future = torch.stack([series[start + 24 : start + 32] for start in starts])
        mean = past.mean(1, keepdim=True)
        loss = F.mse_loss(model(past - mean).view(8, 8, 4), future - mean)
        descend(optimizer, loss)
        return loss.item()

    return step


@case("teacher forcing")
def teacher_forcing(device):
    """Each word that a cell reads is the true one or its own guess, as chance will have it: no step is another's."""
    chance, words = random.Random(0), torch.randn(12, 16, 8).to(device)
    cell, head = nn.GRUCell(8, 24).to(device), nn.Linear(24, 8).to(device)
    optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=1e-3)

    def step():
        state, word, loss = torch.zeros(16, 24, device=device), words[0], 0.0
        for true in words[1:]:
            state = cell(word, state)
            guess = head(state)
            loss = loss + F.mse_loss(guess, true)
            word = true if chance.random() < 0.5 else guess.detach()
        descend(optimizer, loss)
        return loss.item()

    return step


@case("character RNN by hand")
def character_rnn_by_hand(device):
    """Words of four to nine letters, one at a time, and an update of each parameter's data."""
    chance = random.Random(0)
    to_state, to_guess = nn.Linear(62, 32).to(device), nn.Linear(62, 30).to(device)
    parameters = [*to_state.parameters(), *to_guess.parameters()]

    def step():
        word = [chance.randrange(30) for _ in range(chance.randrange(4, 10))]
        state, loss = torch.zeros(1, 32, device=device), 0.0
        for letter, following in zip(word, word[1:], strict=False):
            read = torch.zeros(1, 30, device=device)
            read[0][letter] = 1
            both = torch.cat((read, state), 1)
            state = to_state(both).tanh()
            loss = loss + F.nll_loss(F.log_softmax(to_guess(both), 1), torch.tensor([following], device=device))
        loss.backward()
        for parameter in parameters:
            parameter.data.add_(parameter.grad.data, alpha=-0.005)
            parameter.grad = None
        return loss.item()

    return step
