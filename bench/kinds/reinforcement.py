"""Reinforcement learning on small environments of plain Python numbers."""

import math
import random

import torch
import torch.nn.functional as F
from registry import case
from torch import nn
from torch.distributions import Categorical, Normal

from kinds import descend


class CartPole:
    """A pole on a cart that is pushed left or right, until it falls or 200 steps are over."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.reset()

    def reset(self):
        self.age = 0
        self.state = [self.random.uniform(-0.05, 0.05) for _ in range(4)]
        return self.state

    def step(self, action):
        """Returns the next state, the reward, and whether it is over."""
        place, speed, angle, spin = self.state
        sine, cosine = math.sin(angle), math.cos(angle)
        push = ((10.0 if action else -10.0) + 0.05 * spin**2 * sine) / 1.1
        turn = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        pull = push - 0.05 * turn * cosine / 1.1
        self.age += 1
        self.state = [place + 0.02 * speed, speed + 0.02 * pull, angle + 0.02 * spin, spin + 0.02 * turn]
        return self.state, 1.0, abs(place) > 2.4 or abs(angle) > 0.21 or self.age >= 200


class Pendulum:
    """A pendulum that is turned by a torque of -2 to 2, for 100 steps."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.reset()

    def reset(self):
        self.age, self.angle, self.spin = 0, self.random.uniform(-math.pi, math.pi), self.random.uniform(-1, 1)
        return self._observe()

    def step(self, torque):
        torque = max(-2.0, min(2.0, torque))
        off = (self.angle + math.pi) % (2 * math.pi) - math.pi
        cost = off**2 + 0.1 * self.spin**2 + 0.001 * torque**2
        self.spin = max(-8.0, min(8.0, self.spin + (15 * math.sin(self.angle) + 3 * torque) * 0.05))
        self.angle += self.spin * 0.05
        self.age += 1
        return self._observe(), -cost, self.age >= 100

    def _observe(self):
        return [math.cos(self.angle), math.sin(self.angle), self.spin]


def mlp(*widths, activation=nn.Tanh):
    layers = []
    for before, after in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers[:-1])


def discounted(rewards, gamma=0.99):
    total, returns = 0.0, []
    for reward in reversed(rewards):
        total = reward + gamma * total
        returns.append(total)
    return returns[::-1]


@case("REINFORCE", random=True)
def reinforce(device):
    environment = CartPole(0)
    policy = mlp(4, 64, 2).to(device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)

    def step():
        """As many moves each time, however the games go."""
        state, rewards, log_probs = environment.reset(), [], []
        for _ in range(25):
            distribution = Categorical(logits=policy(torch.tensor(state, device=device)))
            action = distribution.sample()
            log_probs.append(distribution.log_prob(action))
            state, reward, done = environment.step(action.item())
            rewards.append(reward)
            state = environment.reset() if done else state
        returns = torch.tensor(discounted(rewards), device=device)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        loss = -(torch.stack(log_probs) * returns).sum()
        descend(optimizer, loss)
        return sum(rewards)

    return step


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.actor, self.critic = mlp(4, 64, 64), nn.Linear(64, 2), nn.Linear(64, 1)

    def forward(self, states):
        hidden = self.body(states).tanh()
        return Categorical(logits=self.actor(hidden)), self.critic(hidden).squeeze(-1)


def play(environments, states, actions):
    """The next states, rewards and ends of several environments; those that end begin again."""
    results = [e.step(a) for e, a in zip(environments, actions, strict=True)]
    following = [e.reset() if r[2] else r[0] for e, r in zip(environments, results, strict=True)]
    return following, [r[1] for r in results], [float(r[2]) for r in results]


@case("A2C", random=True)
def a2c(device):
    environments = [CartPole(seed) for seed in range(8)]
    model = ActorCritic().to(device)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=7e-4)
    states = [e.state for e in environments]

    def step():
        nonlocal states
        log_probs, values, entropies, rewards, ends = [], [], [], [], []
        for _ in range(5):
            distribution, value = model(torch.tensor(states, device=device))
            action = distribution.sample()
            states, reward, end = play(environments, states, action.tolist())
            log_probs.append(distribution.log_prob(action))
            values.append(value)
            entropies.append(distribution.entropy())
            rewards.append(torch.tensor(reward, device=device))
            ends.append(torch.tensor(end, device=device))
        with torch.no_grad():
            target = model(torch.tensor(states, device=device))[1]
        targets = []
        for reward, end in zip(reversed(rewards), reversed(ends), strict=True):
            target = reward + 0.99 * target * (1 - end)
            targets.insert(0, target)
        advantage = torch.stack(targets) - torch.stack(values)
        policy_loss = -(torch.stack(log_probs) * advantage.detach()).mean()
        loss = policy_loss + 0.5 * advantage.square().mean() - 0.01 * torch.stack(entropies).mean()
        descend(optimizer, loss, max_norm=0.5)
        return loss.item()

    return step


@case("DQN with replay")
def dqn(device):
    environment, chance = CartPole(0), random.Random(0)
    network, target = mlp(4, 64, 64, 2, activation=nn.ReLU).to(device), mlp(4, 64, 64, 2, activation=nn.ReLU).to(device)
    target.load_state_dict(network.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    memory, state, steps = [], environment.state, 0

    def act():
        if chance.random() < 0.1:
            return chance.randrange(2)
        with torch.no_grad():
            return network(torch.tensor(state, device=device)).argmax().item()

    def learn():
        states, actions, rewards, following, ends = zip(*chance.sample(memory, 32), strict=True)
        states, following = torch.tensor(states, device=device), torch.tensor(following, device=device)
        actions = torch.tensor(actions, device=device)
        rewards, ends = torch.tensor(rewards, device=device), torch.tensor(ends, device=device)
        values = network(states).gather(1, actions[:, None]).squeeze(1)
        with torch.no_grad():
            wanted = rewards + 0.99 * target(following).amax(1) * ~ends
        loss = F.smooth_l1_loss(values, wanted)
        descend(optimizer, loss)
        return loss

    def step():
        nonlocal state, steps
        action = act()
        following, reward, done = environment.step(action)
        memory.append((state, action, reward, following, done))
        del memory[:-1000]
        state = environment.reset() if done else following
        steps += 1
        if len(memory) >= 32:
            learn()
        if steps % 50 == 0:
            target.load_state_dict(network.state_dict())
        return action

    return step


@case("PPO", random=True)
def ppo(device):
    environments = [CartPole(seed) for seed in range(8)]
    model = ActorCritic().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, eps=1e-5)
    states = [e.state for e in environments]

    @torch.no_grad()
    def collect():
        nonlocal states
        history = []
        for _ in range(8):
            now = torch.tensor(states, device=device)
            distribution, value = model(now)
            action = distribution.sample()
            states, reward, end = play(environments, states, action.cpu().tolist())
            reward, end = torch.tensor(reward, device=device), torch.tensor(end, device=device)
            history.append((now, action, distribution.log_prob(action), value, reward, end))
        return [torch.stack(column) for column in zip(*history, strict=True)]

    @torch.no_grad()
    def advantages(values, rewards, ends):
        following, last, result = model(torch.tensor(states, device=device))[1], 0.0, []
        for t in reversed(range(len(rewards))):
            delta = rewards[t] + 0.99 * following * (1 - ends[t]) - values[t]
            last = delta + 0.99 * 0.95 * (1 - ends[t]) * last
            result.insert(0, last)
            following = values[t]
        return torch.stack(result)

    def step():
        now, actions, old, values, rewards, ends = collect()
        advantage = advantages(values, rewards, ends)
        returns = (advantage + values).flatten()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        now, actions, old, advantage = now.flatten(0, 1), actions.flatten(), old.flatten(), advantage.flatten()
        for _ in range(2):
            for chosen in torch.randperm(len(actions)).to(device).split(32):
                distribution, value = model(now[chosen])
                ratio = (distribution.log_prob(actions[chosen]) - old[chosen]).exp()
                part = advantage[chosen]
                gain = torch.min(ratio * part, ratio.clamp(0.8, 1.2) * part).mean()
                loss = 0.5 * F.mse_loss(value, returns[chosen]) - gain - 0.01 * distribution.entropy().mean()
                descend(optimizer, loss, max_norm=0.5)
        return loss.item()

    return step


class SquashedGaussian(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp(3, 32, 2)

    def forward(self, states):
        mean, log_std = self.body(states).chunk(2, -1)
        distribution = Normal(mean, log_std.clamp(-5, 2).exp())
        raw = distribution.rsample()
        squashed = raw.tanh()
        return 2 * squashed, (distribution.log_prob(raw) - (1 - squashed.square() + 1e-6).log()).sum(-1)


@case("soft actor-critic", random=True)
def soft_actor_critic(device):
    environment, chance = Pendulum(0), random.Random(0)
    actor = SquashedGaussian().to(device)
    critics = nn.ModuleList(mlp(4, 32, 1, activation=nn.ReLU) for _ in range(2)).to(device)
    targets = nn.ModuleList(mlp(4, 32, 1, activation=nn.ReLU) for _ in range(2)).to(device)
    targets.load_state_dict(critics.state_dict())
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4)
    critic_optimizer = torch.optim.Adam(critics.parameters(), lr=3e-4)
    memory, state = [], environment.reset()

    def judge(networks, states, actions):
        both = torch.cat([states, actions], -1)
        return [network(both).squeeze(-1) for network in networks]

    def update_critics(states, actions, rewards, following):
        with torch.no_grad():
            later, log_prob = actor(following)
            wanted = rewards + 0.99 * (torch.min(*judge(targets, following, later)) - 0.2 * log_prob)
        loss = sum(F.mse_loss(values, wanted) for values in judge(critics, states, actions))
        descend(critic_optimizer, loss)

    def update_actor(states):
        actions, log_prob = actor(states)
        loss = (0.2 * log_prob - torch.min(*judge(critics, states, actions))).mean()
        descend(actor_optimizer, loss)

    @torch.no_grad()
    def follow():
        for slow, fast in zip(targets.parameters(), critics.parameters(), strict=True):
            slow.mul_(0.995).add_(0.005 * fast)

    def step():
        nonlocal state
        with torch.no_grad():
            action = actor(torch.tensor(state, device=device))[0].item()
        following, reward, done = environment.step(action)
        memory.append((state, [action], reward, following))
        del memory[:-1000]
        state = environment.reset() if done else following
        batch = [torch.tensor(column, device=device) for column in zip(*chance.choices(memory, k=32), strict=True)]
        update_critics(*batch)
        update_actor(batch[0])
        follow()
        return reward

    return step


@case("cross-entropy method", random=True)
def cross_entropy_method(device):
    """Plans torques of a pendulum on the device, by simulating many plans at once."""
    mean = torch.zeros(12, device=device)

    def simulate(plans):
        angle, spin = torch.full((len(plans),), 2.0, device=device), torch.zeros(len(plans), device=device)
        cost = torch.zeros_like(angle)
        for torque in plans.unbind(1):
            spin = (spin + (15 * angle.sin() + 3 * torque) * 0.05).clamp(-8, 8)
            angle = angle + spin * 0.05
            cost = cost + angle.square() + 0.1 * spin.square()
        return cost

    def step():
        nonlocal mean
        std = torch.ones_like(mean)
        for _ in range(3):
            plans = (mean + std * torch.randn(64, 12, device=device)).clamp(-2, 2)
            elite = plans[simulate(plans).topk(8, largest=False).indices]
            mean, std = elite.mean(0), elite.std(0)
        torque = mean[0].item()
        mean = torch.cat([mean[1:], mean.new_zeros(1)])
        return torque

    return step


@case("tabular Q-learning")
def tabular_q_learning(device):
    """A walk through a field of 6 x 6 places, whose values stand in a table that is written place by place."""
    chance, values = random.Random(0), torch.zeros(36, 4, device=device)
    moves = ((0, 1), (1, 0), (0, -1), (-1, 0))
    at = {"row": 0, "column": 0}

    def step():
        place = 6 * at["row"] + at["column"]
        action = chance.randrange(4) if chance.random() < 0.2 else values[place].argmax().item()
        down, right = moves[action]
        at.update(row=min(max(at["row"] + down, 0), 5), column=min(max(at["column"] + right, 0), 5))
        is_over = at["row"] == at["column"] == 5
        ahead = 0.0 if is_over else 0.95 * values[6 * at["row"] + at["column"]].max()
        values[place, action] += 0.2 * ((1.0 if is_over else -0.01) + ahead - values[place, action])
        if is_over:
            at.update(row=0, column=0)
        return action

    return step
