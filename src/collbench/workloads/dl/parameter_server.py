"""`python -m collbench.workloads.dl.parameter_server --servers S --shard HOW --steps K ...`: train a network.

With servers it is one rank of a world, as torchrun's environment variables say; the first S ranks are servers, all
others are workers. Without servers it is one process alone. Every rank prints the same JSON: `ns`, from when all ranks
are ready until the last step is applied; `steps` of each worker; gradients `applied` by each server, and the `bytes` of
its weights; `accuracy` and mean `loss` on images that were held out, and `data`, which names them; and the `curve`
after each tenth of the steps: the step, nanoseconds since the start, and the accuracy of the weights of then, which is
computed at the end.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate, pairwise
from typing import Any, NoReturn

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

from collbench.workloads.dl.datasets import NETWORKS, SOURCES, BadData
from collbench.workloads.dl.suite import PARAMETER_SERVER
from collbench.workloads.program import threads_of_rank
from collbench.workloads.protocol import arguments

INPUTS, HIDDEN, CLASSES = 784, 100, 10

#: The variables, in the order in which the weights stand in the vector: weights and biases of both layers.
SHAPES = ((INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))

#: Where each variable lies in the vector.
PLACES = tuple(slice(*ends) for ends in pairwise(accumulate(map(math.prod, SHAPES), initial=0)))

#: Length of the vector: 79,510; and parts of it.
WEIGHTS = PLACES[-1].stop
VariableShare = tuple[slice, ...]


def shares(servers: int, shard: str) -> tuple[VariableShare, ...]:
    """What each server holds.

    `even`: one part each, of lengths that differ by at most 1. `variable`: whole variables in turn, of which the
    first is the number of steps, as TensorFlow's `replica_device_setter` places those of its example mnist_replica.
    """
    if shard == "even":
        ends = (WEIGHTS * number // servers for number in range(servers + 1))
        return tuple((slice(*span),) for span in pairwise(ends))
    turns = list(enumerate(PLACES, start=1))
    return tuple(tuple(place for turn, place in turns if turn % servers == server) for server in range(servers))


def length(share: VariableShare) -> int:
    """Weights in it."""
    return sum(part.stop - part.start for part in share)


def initial(seed: int) -> torch.Tensor:
    """The weights of a new network [79510]: normal, of standard deviation 1/sqrt(inputs); biases are 0."""
    generator = torch.Generator().manual_seed(seed)
    vector = torch.zeros(WEIGHTS)
    for place, shape in zip(PLACES, SHAPES, strict=True):
        if len(shape) == 2:
            vector[place].normal_(0.0, shape[0] ** -0.5, generator=generator)
    return vector


class MnistNetwork:
    """`weights` and `gradient` [79510] share their memory with the variables."""

    def __init__(self, seed: int) -> None:
        self.weights, self.gradient = initial(seed), torch.zeros(WEIGHTS)
        self._variables = []
        for place, shape in zip(PLACES, SHAPES, strict=True):
            variable = self.weights[place].view(shape).detach().requires_grad_()
            variable.grad = self.gradient[place].view(shape)
            self._variables.append(variable)

    def learn(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Set the gradient to that of the cross entropy, summed over a batch."""
        self.gradient.zero_()
        torch.autograd.backward(cross_entropy(self._answers(images), labels, reduction="sum"))

    def judged(self, examples: MnistExamples) -> dict[str, Any]:
        """What it is worth on what it was not trained with: accuracy and mean cross entropy."""
        images, labels = examples.held_out()
        with torch.no_grad():
            answers = self._answers(images)
        right = (answers.argmax(dim=1) == labels).float().mean()
        return {"accuracy": right.item(), "loss": cross_entropy(answers, labels).item(), "data": examples.label}

    def curve(
        self, marks: Sequence[int], times: Sequence[int], weights: torch.Tensor, examples: MnistExamples
    ) -> list[Any]:
        """Steps, nanoseconds, and the accuracy by `weights` [marks, 79510]."""
        points = []
        for step, ns, then in zip(marks, times, weights, strict=True):
            self.weights.copy_(then)
            points.append((step, ns, self.judged(examples)["accuracy"]))
        return points

    def _answers(self, images: torch.Tensor) -> torch.Tensor:
        hidden, hidden_bias, output, output_bias = self._variables
        return torch.relu(images @ hidden + hidden_bias) @ output + output_bias


RATE, BETA1, BETA2, EPSILON = 0.01, 0.9, 0.999, 1e-8


class Adam:
    """In TensorFlow's form, at the end of section 2 of D. P. Kingma and J. Ba (ICLR 2015); [n] are changed in place."""

    def __init__(self, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        self._weights, self._gradient = weights, gradient
        self._mean, self._square = torch.zeros_like(weights), torch.zeros_like(weights)
        self._steps = 0

    def step(self) -> None:
        self._steps += 1
        self._mean.lerp_(self._gradient, 1 - BETA1)
        self._square.mul_(BETA2).addcmul_(self._gradient, self._gradient, value=1 - BETA2)
        rate = RATE * math.sqrt(1 - BETA2**self._steps) / (1 - BETA1**self._steps)
        self._weights.addcdiv_(self._mean, self._square.sqrt().add_(EPSILON), value=-rate)


#: Images of a batch, and those that are made up; one of HELD_OUT is held out to measure the accuracy: 5000 of 60,000,
#: as in the tutorials on MNIST.
BATCH, IMAGES, HELD_OUT = 100, 60_000, 12

#: Made-up images are mostly dark, as digits are: for each class a fifth of the pixels is likelier to be bright than the
#: others. Of 256, in how many images it is.
DRAWN, LIKELY = 0.2, (64, 32)


@dataclass(frozen=True)
class MnistExamples:
    """`images` [n, 784] uint8, `labels` [n]; the last twelfth is not trained with. `label` names them honestly."""

    label: str
    images: torch.Tensor
    labels: torch.Tensor

    def batch(self, which: torch.Tensor | slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Pixels from 0 to 1, and labels."""
        return self.images[which].float().div_(255), self.labels[which]

    def held_out(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.batch(slice(self._trained, None))

    def batches(self, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Without an end: every epoch in another order."""
        generator = torch.Generator().manual_seed(seed)
        while True:
            for which in torch.split(torch.randperm(self._trained, generator=generator), BATCH):
                if len(which) == BATCH:
                    yield self.batch(which)

    @property
    def _trained(self) -> int:
        return len(self.labels) - len(self.labels) // HELD_OUT


def examples(data: str, seed: int) -> MnistExamples:
    """The data set of that name, in an order that follows from the seed; what is made up follows from it too."""
    random = np.random.default_rng(seed)
    if data == "made-up":
        likely = np.where(random.random((CLASSES, INPUTS)) < DRAWN, *LIKELY).astype(np.uint8)
        labels = random.integers(0, CLASSES, IMAGES)
        noise = random.integers(0, 256, (IMAGES, INPUTS), dtype=np.uint8)
        pixels = np.where(noise < likely[labels], ~noise, np.uint8(0))
        label = f"made-up {IMAGES} x {INPUTS}, mostly dark"
    else:
        source = SOURCES[data].read(NETWORKS["fcn5"], IMAGES)
        rows, label = random.permutation(source.rows), source.label
        pixels, labels = rows[:, :-1], rows[:, -1]
    return MnistExamples(label, torch.from_numpy(pixels), torch.from_numpy(labels.astype(np.int64)))


#: How many points a curve has at most.
POINTS = 10


def marks_of(steps: int) -> list[int]:
    """After which steps the weights are kept: the last one is among them."""
    return sorted({max(1, round(steps * point / POINTS)) for point in range(1, POINTS + 1)})


class Curve:
    """The weights [length] after certain steps, and the time since `start` (ns); a copy takes some 30 us."""

    def __init__(self, steps: int, weights: torch.Tensor) -> None:
        self._marks, self._weights, self.times = set(marks_of(steps)), weights, list[int]()
        self.kept = torch.zeros(len(self._marks), len(weights))

    def start(self) -> None:
        self._began = time.perf_counter_ns()

    def applied(self, step: int) -> None:
        """Of the first step from 1 on."""
        if step in self._marks:
            self.times.append(time.perf_counter_ns() - self._began)
            self.kept[len(self.times) - 1] = self._weights


#: What a worker asks for, the first word of a request: weights; weights after this gradient; nothing, it has ended. The
#: first word of an answer, before the weights, says whether the worker is to take another step.
PULL, PUSH, END = 0, 1, 2


class Server:
    """A share of the weights and Adam's state of them, and the curve of `steps`. `applied` gradients."""

    def __init__(self, share: VariableShare, seed: int, steps: int) -> None:
        whole = initial(seed)
        self._request, self._answer = torch.zeros(1 + length(share)), torch.zeros(1 + length(share))
        self.weights = self._answer[1:]
        self.weights.copy_(torch.cat([whole[part] for part in share]))
        self._adam = Adam(self.weights, self._request[1:])
        self.applied, self.curve = 0, Curve(steps, self.weights)

    def serve(self, workers: int, steps: int) -> None:
        """Answer until every worker has ended. Workers ask the first server whether there is another of the `steps`."""
        started = 0
        self.curve.start()
        while workers:
            worker = dist.recv(self._request)
            request = int(self._request[0])
            if request == END:
                workers -= 1
                continue
            if request == PUSH:
                self._adam.step()
                self.applied += 1
                self.curve.applied(self.applied)
            self._answer[0] = started < steps
            started += 1
            dist.send(self._answer, worker)


class Worker:
    """The servers are the first ranks, one for each share. `steps` are those that this worker has taken."""

    def __init__(self, shares: Sequence[VariableShare], examples: MnistExamples, seed: int, number: int) -> None:
        self._shares, self.network, self.steps = shares, MnistNetwork(seed), 0
        self._requests = [torch.zeros(1 + length(share)) for share in shares]
        self._answers = [torch.zeros(1 + length(share)) for share in shares]
        self._batches = examples.batches(seed + number)
        self.network.learn(*next(examples.batches(seed)))  # what only the first time does, such as starting threads

    def train(self) -> None:
        """As many steps as the first server lets this worker take."""
        more = self._ask(PULL)
        while more:
            self.network.learn(*next(self._batches))
            more = self._ask(PUSH)
            self.steps += 1
        for server, request in enumerate(self._requests):
            request[0] = END
            dist.send(request, server)

    def _ask(self, what: int) -> bool:
        """Send the gradient to every server and take its weights. Returns whether there is another step."""
        pending = [dist.irecv(answer, server) for server, answer in enumerate(self._answers)]
        for server, (request, share) in enumerate(zip(self._requests, self._shares, strict=True)):
            request[0] = what
            torch.cat([self.network.gradient[part] for part in share], out=request[1:])
            pending.append(dist.isend(request, server))
        for work in pending:
            assert work is not None  # as it is on a rank outside the group
            work.wait()
        for answer, share in zip(self._answers, self._shares, strict=True):
            put(answer[1:], share, self.network.weights)
        return bool(self._answers[0][0])


def put(held: torch.Tensor, share: VariableShare, weights: torch.Tensor) -> None:
    """What a server holds, to its places among all weights."""
    with torch.no_grad():
        for part, values in zip(share, torch.split(held, [length((part,)) for part in share]), strict=True):
            weights[part] = values


#: Messages of lifelines, which come when a worker has done its part, or never; those of the training have tag 0.
_TAG = 1

#: How long a rank waits for another one, until all have started, and then for each message; and how long a training may
#: take, which is ended by whoever started it.
PATIENCE, _LONGEST = timedelta(minutes=10), timedelta(days=7)


def fail(what: str, error: Exception) -> NoReturn:
    """End this process at once, whatever its other threads wait for; the last line on standard error is the reason."""
    why = str(error)
    if isinstance(error, RuntimeError):  # gloo's: the place in its source comes before its messages
        why = re.sub(r"^\[[^]]*\]\s*", "", why.partition("\n")[0])
    sys.stderr.write(f"{what}: {why}\n")
    sys.stderr.flush()
    os._exit(1)


def alone(data: str, seed: int, steps: int) -> dict[str, Any]:
    """One process that trains without servers."""
    images, network = examples(data, seed), MnistNetwork(seed)
    optimizer, batches = Adam(network.weights, network.gradient), images.batches(seed)
    network.learn(*next(images.batches(seed)))
    curve = Curve(steps, network.weights.detach())
    curve.start()
    for step in range(1, steps + 1):
        network.learn(*next(batches))
        optimizer.step()
        curve.applied(step)
    points = network.curve(marks_of(steps), curve.times, curve.kept, images)  # ends with the weights of the last step
    return {"ns": [curve.times[-1]], "steps": [steps], "applied": [], "bytes": [], "curve": points,
            **network.judged(images)}  # fmt: skip


def name_of(rank: int, servers: int) -> str:
    """`worker 0 (rank 1)`; the servers are the first ranks."""
    role, number = ("server", rank) if rank < servers else ("worker", rank - servers)
    return f"{role} {number} (rank {rank})"


def together(data: str, seed: int, steps: int, servers: int, shard: str) -> dict[str, Any]:
    """A rank of the world that torchrun's environment variables name. Every rank returns the same."""
    dist.init_process_group("gloo", init_method="env://", timeout=PATIENCE)
    rank, workers, parts = dist.get_rank(), dist.get_world_size() - servers, shares(servers, shard)
    try:
        result = _serve(rank, parts, workers, seed, steps) if rank < servers else _work(rank, parts, data, seed, steps)
        results: list[Any] = [None] * (servers + workers)
        dist.all_gather_object(results, result)
        dist.destroy_process_group()
    except RuntimeError as error:  # gloo's
        fail(f"{name_of(rank, servers)} lost another rank", error)
    held, trained = results[:servers], results[servers:]
    return {
        "ns": [max(server["times"][-1] for server in held)],
        "steps": [worker["steps"] for worker in trained],
        **{name: [server[name] for server in held] for name in ("applied", "bytes")},
        **{name: trained[0][name] for name in ("accuracy", "loss", "data", "curve")},
    }


def _serve(rank: int, parts: Sequence[VariableShare], workers: int, seed: int, steps: int) -> dict[str, Any]:
    server, servers = Server(parts[rank], seed, steps), len(parts)

    def hold(worker: int, message: dist.Work) -> None:
        """Until a worker has done its part, or is lost."""
        try:
            message.wait(_LONGEST)
        except RuntimeError as error:
            fail(f"{name_of(rank, servers)}: {name_of(worker, servers)} ended before its last step", error)

    messages = [(worker, dist.irecv(torch.zeros(1), worker, tag=_TAG)) for worker in range(servers, servers + workers)]
    lifelines = [threading.Thread(target=hold, args=both, daemon=True) for both in messages]
    for thread in lifelines:
        thread.start()
    dist.barrier()
    server.serve(workers, steps)
    for thread in lifelines:
        thread.join()
    curve = server.curve
    dist.send(curve.kept, servers)
    dist.send(torch.tensor(curve.times), servers)
    return {"applied": server.applied, "times": curve.times, "bytes": server.weights.nbytes}


def _work(rank: int, parts: Sequence[VariableShare], data: str, seed: int, steps: int) -> dict[str, Any]:
    images, servers = examples(data, seed), len(parts)
    worker = Worker(parts, images, seed, rank - servers)
    dist.barrier()
    worker.train()
    for server in range(servers):  # this rank has done its part
        dist.send(torch.zeros(1), server, tag=_TAG)
    taken = {"steps": worker.steps}
    if rank > servers:
        return taken
    marks = marks_of(steps)
    weights, times = torch.zeros(len(marks), WEIGHTS), torch.zeros(servers, len(marks), dtype=torch.int64)
    for server, share in enumerate(parts):
        held = torch.zeros(len(marks), length(share))
        dist.recv(held, server)
        dist.recv(times[server], server)
        for then, at_mark in zip(weights, held, strict=True):
            put(at_mark, share, then)
    points = worker.network.curve(marks, times.amax(0).tolist(), weights, images)
    return taken | {"curve": points} | worker.network.judged(images)


def main() -> None:
    """Train as the flags say, and print the result."""
    flags = arguments(__doc__, PARAMETER_SERVER)
    torch.set_num_threads(threads_of_rank(flags.threads))
    what = (flags.data, flags.seed, flags.steps)
    try:
        result = together(*what, flags.servers, flags.shard) if flags.servers else alone(*what)
    except (BadData, OSError) as error:
        fail(f"data={flags.data}", error)
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
