"""The explorer ``ppo``: proximal policy optimization on a design space (Ahn et al. 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from chameleon_core.plugin_api import (
    Candidates,
    Configs,
    Explorer,
    Observations,
    StageContext,
    Visited,
)
from torch import Tensor

from chameleon_explorers._best_set import BestSet
from chameleon_explorers._ppo.episodes import STAY, EpisodeBatch
from chameleon_explorers._ppo.learning import Agent, Rollout, masked_bias
from chameleon_explorers._ppo.networks import (
    ActorCritic,
    SeparateActorCritic,
    SharedActorCritic,
    TokenActorCritic,
    stay_bias,
)
from chameleon_explorers._ppo.options import PPOOptions
from chameleon_explorers._ppo.states import StateEncoder, TokenStates, VectorStates


class PPOExplorer(Explorer):
    """An agent that learns from the cost model's scores how to change knobs.

    All episodes move as one batch, and the agent learns after every ``horizon`` steps.
    """

    def __init__(self, options: PPOOptions, context: StageContext) -> None:
        self._options = options
        self._space = context.space
        self._rng = context.rng
        self._elites: Configs = np.empty((0, len(context.space.knobs)), np.int32)
        self._actions = 4 if options.jumps else 3
        tokens = options.network == "tokens"
        self._encoder: StateEncoder = (TokenStates if tokens else VectorStates)(context.space)
        # A portfolio may have several members of this class, with different options.
        name = f"ppo/agent of {options}"
        self._agent: Agent = (
            context.archive.shared(name, self._make_agent)
            if options.transfer
            else self._make_agent()
        )
        movable = int((context.space.cardinalities > 1).sum())
        self._bias = torch.zeros(self._actions)
        self._bias[STAY] = stay_bias(max(movable, 1), self._actions, options.moves)

    def observe(self, observations: Observations) -> None:
        self._elites = observations.fastest[: self._options.elites]

    def explore(
        self, score: Explorer.ScoreFunction | None, visited: Visited, count: int
    ) -> Candidates:
        if score is None:
            configs = visited.sample(count, self._rng)
            return Candidates(configs=configs, scores=np.zeros(len(configs)))
        best = BestSet(self._space, visited, count)
        starts = self._starting_points()
        steps = 0
        if len(starts):
            with single_thread():
                steps = self._walk(score, starts, best)
        return best.fill(score, self._rng, steps)

    def _walk(self, score: Explorer.ScoreFunction, starts: Configs, best: BestSet) -> int:
        """Walk all episodes while the agent learns, and return the number of steps."""
        options = self._options
        episodes = EpisodeBatch(
            self._space,
            score,
            starts,
            rng=self._rng,
            reward=options.reward,
            illegal_penalty=options.illegal_penalty,
            keep_best=options.keep_best,
            end_share=options.end_share,
        )
        best.offer(episodes.configs, episodes.scores)
        step, unchanged, idle = 0, 0, False
        while step < options.steps and episodes.alive.any() and not idle:
            transitions = []
            for _ in range(min(options.horizon, options.steps - step)):
                transition, improved = self._step(episodes, best)
                transitions.append(transition)
                step += 1
                unchanged = 0 if improved else unchanged + 1
                idle = 0 < options.early_stop <= unchanged
                if idle or not episodes.alive.any():
                    break
            self._learn(episodes, transitions, step)
            self._restart(episodes, best)
        return step

    def _step(self, episodes: EpisodeBatch, best: BestSet) -> tuple[list[Tensor], bool]:
        """Take one step in all episodes; return the transition, and whether ``best`` changed."""
        states = self._states(episodes)
        logit_biases = self._logit_biases(episodes)
        actions, log_probabilities, values = self._agent.act(states, logit_biases)
        alive = episodes.alive.copy()
        outcome = episodes.step(actions.numpy())
        improved = len(outcome.scores) > 0 and best.offer(outcome.legal_configs, outcome.scores)
        flags = torch.from_numpy(np.stack([alive, outcome.not_done]).astype(np.float32))
        rewards = torch.from_numpy(outcome.rewards)
        return [states, logit_biases, actions, log_probabilities, values, rewards, *flags], improved

    def _learn(self, episodes: EpisodeBatch, transitions: list[list[Tensor]], step: int) -> None:
        """Train the agent with the steps since its last update."""
        columns = [torch.stack(column) for column in zip(*transitions, strict=True)]
        states, logit_biases, actions, log_probabilities, values, rewards, alive, not_done = columns
        after = self._agent.values(self._states(episodes))
        rollout = Rollout(
            states=states,
            logit_biases=logit_biases,
            actions=actions,
            log_probabilities=log_probabilities,
            values=torch.cat([values, after.unsqueeze(0)]),
            rewards=rewards,
            alive=alive,
            not_done=not_done,
        )
        options = self._options
        entropy = options.entropy
        if options.entropy_end is not None:
            entropy += (options.entropy_end - entropy) * step / options.steps
        self._agent.learn(rollout, entropy)

    def _restart(self, episodes: EpisodeBatch, best: BestSet) -> None:
        """Continue the worst episodes from some of the best candidates found so far."""
        count = int(self._options.restarts * len(episodes))
        if not count or not len(best.scores):
            return
        worst = np.argsort(episodes.scores, kind="stable")[:count]
        chosen = self._rng.integers(len(best.scores), size=count)
        episodes.restart(worst, best.configs[chosen], best.scores[chosen])

    def _states(self, episodes: EpisodeBatch) -> Tensor:
        return torch.from_numpy(
            self._encoder.encode(episodes.configs, episodes.moves, episodes.summary)
        )

    def _logit_biases(self, episodes: EpisodeBatch) -> Tensor:
        """Biases of the policy's logits, shape (episodes, knobs, actions)."""
        if not self._options.masking:
            return self._bias.expand(*episodes.configs.shape, -1)
        allowed = torch.from_numpy(episodes.movable()[:, :, : self._actions])
        return masked_bias(allowed, self._bias)

    def _starting_points(self) -> Configs:
        """The first configurations (episodes, knobs): elites, first guesses, then random ones."""
        wanted = self._options.episodes
        drawn = self._space.sample(wanted, self._rng)
        starts = np.concatenate([self._elites, self._space.first_guesses, drawn])
        # Measurements from an older version of the space may be illegal in this one.
        starts = self._space.distinct(starts[self._space.legal(starts)])[:wanted]
        if 0 < len(starts) < wanted:
            # With fewer configurations than episodes, several start at the same one.
            starts = np.resize(starts, (wanted, starts.shape[1]))
        return starts

    def _make_agent(self) -> Agent:
        """A new agent, whose random numbers all come from this explorer's generator."""
        options = self._options
        generator = torch.Generator().manual_seed(int(self._rng.integers(2**63)))
        network: ActorCritic
        if options.network == "tokens":
            features = self._encoder.shape[-1]
            network = TokenActorCritic(features, self._actions, options.width, generator)
        else:
            kind = SharedActorCritic if options.network == "shared" else SeparateActorCritic
            network = kind(len(self._space.knobs), self._actions, options.width, generator)
        return Agent(network, options, generator)


@contextmanager
def single_thread() -> Iterator[None]:
    """A context in which torch uses one thread, which is faster for the agent's small matrices."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
