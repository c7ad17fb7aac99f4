"""The networks of Fathom that read sequences: sentences, stories and speech. See `fathom_networks`.

Jean, Cho, Memisevic, Bengio, "On Using Very Large Target Vocabulary for Neural Machine Translation", ACL 2015, have the
sampled softmax; its words are drawn as TensorFlow's sampled_softmax_loss does: frequent words, whose numbers are low,
more often, and none twice.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from collbench.workloads.dl.fathom_networks import FathomNetwork, drawn, glorot

# Translation ---------------------------------------------------------------------------------------------------------

#: For each layer what it remembers and what it gave [n, size].
State = tuple[tuple[Tensor, Tensor], ...]


class LstmLayers(nn.Module):
    """LSTM layers of one size. Their forget gates have 1 added, which is no parameter."""

    def __init__(self, size: int, number: int) -> None:
        super().__init__()
        self.gates = nn.ModuleList(nn.Linear(2 * size, 4 * size) for _ in range(number))

    def begin(self, inputs: Tensor) -> State:
        """Zeros, as many as `inputs` [n, size] asks for."""
        return tuple((torch.zeros_like(inputs), torch.zeros_like(inputs)) for _ in self.gates)

    def forward(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """What the last layer gives, and the state of all."""
        after = list[tuple[Tensor, Tensor]]()
        for gates, (memory, previous) in zip(self.gates, state, strict=True):
            enters, candidate, stays, leaves = gates(torch.cat((inputs, previous), 1)).chunk(4, 1)
            remembered = memory * (stays + 1).sigmoid() + enters.sigmoid() * candidate.tanh()
            inputs = remembered.tanh() * leaves.sigmoid()
            after.append((remembered, inputs))
        return inputs, tuple(after)


#: So many DRAWS from 40,000 words hit about SAMPLES different ones.
SAMPLES, DRAWS = 512, 813.8


def chances(words: int) -> Tensor:
    """Of each word in one draw, by Zipf's law: ln((k + 2) / (k + 1)) / ln(words + 1)."""
    numbers = torch.arange(1.0, words + 1, dtype=torch.float64)
    return ((numbers + 1) / numbers).log() / math.log(words + 1)


def expected(words: int) -> Tensor:
    """The logarithm of how likely each word is among the samples."""
    return (-torch.expm1(DRAWS * torch.log1p(-chances(words)))).log().float()


class SampledSoftmax(nn.Module):
    """From outputs [steps, n, size] and right words [steps, n] to the loss of each [steps, n]."""

    chances: Tensor
    expected: Tensor

    def __init__(self, size: int, words: int) -> None:
        super().__init__()
        self.weights, self.biases = nn.Parameter(torch.empty(words, size)), nn.Parameter(torch.empty(words))
        self.register_buffer("chances", chances(words).float())
        self.register_buffer("expected", expected(words))

    def forward(self, outputs: Tensor, words: Tensor) -> Tensor:
        others, embedding = torch.multinomial(self.chances.expand(len(outputs), -1), SAMPLES), nn.functional.embedding
        right = (outputs * embedding(words, self.weights)).sum(2) + self.offsets(words)
        wrong = outputs @ embedding(others, self.weights).transpose(1, 2) + self.offsets(others)[:, None]
        wrong = wrong.masked_fill(others[:, None] == words[:, :, None], -torch.inf)
        return -torch.cat((right[:, :, None], wrong), 2).log_softmax(2)[:, :, 0]

    def offsets(self, words: Tensor) -> Tensor:
        """What is added to the logits of these words."""
        return nn.functional.embedding(words, self.biases[:, None])[..., 0] - self.expected[words]


#: Words of the languages, and of the made-up pair of sentences.
VOCABULARY, SOURCE, TARGET = 40_000, 37, 43

SIZE, LAYERS = 256, 3

#: The words that fill up, begin and end a sentence; one that is unknown would be 3.
PAD, BEGIN, END, FIRST = 0, 1, 2, 4

#: Most words of source and target, less one.
BUCKETS = ((5, 10), (10, 15), (20, 25), (40, 50))


class Attention(nn.Module):
    """A mean of what the encoder gave, weighted by the state of the decoder (Vinyals et al., arXiv:1412.7449)."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Linear(SIZE, SIZE, bias=False)
        self.query = nn.Linear(2 * LAYERS * SIZE, SIZE)
        self.weigh = nn.Linear(SIZE, 1, bias=False)

    def forward(self, values: Tensor, keys: Tensor, state: State) -> Tensor:
        query = self.query(torch.cat([part for layer in state for part in layer], 1))
        weights = (self.weigh.weight * (keys + query[:, None]).tanh()).sum(2).softmax(1)
        mean: Tensor = (weights[:, :, None] * values).sum(1)
        return mean


class Seq2Seq(FathomNetwork):
    """seq2seq: translation. A softmax over the right word and 512 others; layers are unrolled; the source is reversed.

    Sentences belong to the smallest of four buckets that holds them, here the largest, and are filled up to its size.
    Not kept: gradients of the embeddings are dense here, of those words that occur there; the embeddings and the
    softmax of all steps are computed at once. The learning rate does not fall.
    """

    algorithm, rate = torch.optim.SGD, 0.5

    def __init__(self) -> None:
        super().__init__()
        self.source_words, self.target_words = nn.Embedding(VOCABULARY, SIZE), nn.Embedding(VOCABULARY, SIZE)
        self.encoder, self.decoder = LstmLayers(SIZE, LAYERS), LstmLayers(SIZE, LAYERS)
        self.attention = Attention()
        self.enter, self.leave = nn.Linear(2 * SIZE, SIZE), nn.Linear(2 * SIZE, SIZE)
        self.softmax = SampledSoftmax(SIZE, VOCABULARY)
        drawn(self, glorot)
        nn.init.uniform_(self.source_words.weight, -math.sqrt(3), math.sqrt(3))
        likely = chances(VOCABULARY - FIRST)
        self.pair = tuple(FIRST + torch.multinomial(likely, words, True) for words in (SOURCE, TARGET))

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Words of the source [40, size], of the target before and after each step, and their weights [50, size]."""
        source, target = (sentence.tolist() for sentence in self.pair)
        longest, steps = next(both for both in BUCKETS if len(source) < both[0] and len(target) + 1 < both[1])
        reversed_source = [PAD] * (longest - len(source)) + source[::-1]
        fed = ([BEGIN, *target, END] + [PAD] * steps)[:steps]
        wanted = [*fed[1:], PAD]
        weights = [float(word != PAD) for word in wanted]
        rows = (reversed_source, fed, wanted, weights)  # the same for all samples: there is but one pair
        return tuple(torch.tensor(row)[:, None].repeat(1, size) for row in rows)

    def loss(self, *batch: Tensor) -> Tensor:
        source, fed, wanted, weights = batch
        losses = self.softmax(self.decoded(fed, *self.encoded(source)), wanted) * weights
        mean: Tensor = (losses.sum(0) / weights.sum(0)).mean()
        return mean

    def encoded(self, source: Tensor) -> tuple[Tensor, State]:
        """What the last layer gives for each word [n, words, SIZE], and the state after the last."""
        inputs = self.source_words(source)
        state, outputs = self.encoder.begin(inputs[0]), []
        for words in inputs:
            output, state = self.encoder(words, state)
            outputs.append(output)
        return torch.stack(outputs, 1), state

    def decoded(self, fed: Tensor, values: Tensor, state: State) -> Tensor:
        """The output of every step [steps, n, SIZE]."""
        keys, outputs = self.attention.keys(values), []
        context = torch.zeros_like(values[:, 0])
        for words in self.target_words(fed):
            output, state = self.decoder(self.enter(torch.cat((words, context), 1)), state)
            context = self.attention(values, keys, state)
            outputs.append(self.leave(torch.cat((output, context), 1)))
        return torch.stack(outputs)

    def change_gradients(self) -> None:
        nn.utils.clip_grad_norm_(self.parameters(), 5.0)


# Stories -------------------------------------------------------------------------------------------------------------

#: Word 0 fills sentences and stories up.
WORDS, SENTENCES, LENGTH, QUESTION, EMBEDDING, HOPS = 20, 10, 6, 3, 20, 3


def positions() -> Tensor:
    """The weight [LENGTH, EMBEDDING] of a word by its place (Sukhbaatar et al., "End-To-End Memory Networks", 4.1)."""
    place, element = torch.arange(1.0, LENGTH + 1)[:, None], torch.arange(1.0, EMBEDDING + 1)
    return 1 + 4 * (element - EMBEDDING / 2) * (place - LENGTH / 2) / EMBEDDING / LENGTH


class Memnet(FathomNetwork):
    """memnet: an end-to-end memory network, for stories of the sizes of the first of the bAbI tasks.

    After clipping and noise (of deviation 0.001), gradients for the word that stands for nothing are set to zero;
    products with the memory are element by element and added up; the same words are what the memory is asked by and
    what it answers.
    """

    rate = 0.01
    positions: Tensor

    def __init__(self) -> None:
        def matrix(rows: int, columns: int) -> nn.Parameter:
            return nn.Parameter(torch.randn((rows, columns)) * 0.1)

        super().__init__()
        self.story_words, self.question_words = matrix(WORDS, EMBEDDING), matrix(WORDS, EMBEDDING)
        self.times, self.hop = matrix(SENTENCES, EMBEDDING), matrix(EMBEDDING, EMBEDDING)
        self.answer = matrix(EMBEDDING, WORDS)
        self.register_buffer("positions", positions())
        with torch.no_grad():
            self.story_words[0], self.question_words[0] = 0.0, 0.0

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Stories [size, SENTENCES, LENGTH], questions [size, LENGTH], and answers [size, WORDS] as ones and zeros."""
        stories = torch.randint(1, WORDS, (size, SENTENCES, LENGTH), generator=generator)
        sentences = 2 * torch.randint(1, SENTENCES // 2 + 1, (size, 1), generator=generator)
        stories[torch.arange(SENTENCES) >= sentences] = 0
        questions = torch.randint(1, WORDS, (size, LENGTH), generator=generator)
        questions[:, QUESTION:] = 0
        answers = torch.randint(1, WORDS, (size,), generator=generator)
        return stories, questions, nn.functional.one_hot(answers, WORDS).float()

    def loss(self, *batch: Tensor) -> Tensor:
        stories, questions, answers = batch
        embedding = nn.functional.embedding
        query = (embedding(questions, self.question_words) * self.positions).sum(1)
        memory = (embedding(stories, self.story_words) * self.positions).sum(2) + self.times
        for _ in range(HOPS):
            attention = (memory * query[:, None]).sum(2).softmax(1)
            query = query @ self.hop + (memory * attention[:, :, None]).sum(1)
        return nn.functional.cross_entropy(query @ self.answer, answers, reduction="sum")

    def change_gradients(self) -> None:
        for parameter in self.parameters():
            nn.utils.clip_grad_norm_((parameter,), 40.0)
            assert parameter.grad is not None
            parameter.grad += torch.randn_like(parameter) * 1e-3
        for words in (self.story_words, self.question_words):
            assert words.grad is not None
            words.grad[0] = 0.0


# Speech --------------------------------------------------------------------------------------------------------------

FRAMES, COEFFICIENTS, WIDTH = 1566, 26, 1024

#: The last one is the blank. A sample has up to MOST of them.
LABELS, LEAST, MOST = 62, 20, 75


def clipped(values: Tensor) -> Tensor:
    """A ReLU up to 20, without a gradient at 0."""
    return nn.functional.hardtanh(values, 0.0, 20.0)


class Speech(FathomNetwork):
    """speech: Deep Speech as it runs. Every activation is cut off at 20.

    The last layer reads what the recurrent one reads, so TensorFlow never runs that (`speech-recurrent` has it).
    Nothing is ever learnt: the loss stays ln 62 for each label.
    Not kept: the original copies each matrix for every sample, and multiplies sample by sample.
    """

    algorithm, rate = torch.optim.SGD, 0.01

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(inputs, WIDTH) for inputs in (COEFFICIENTS, WIDTH, WIDTH))
        self.last = nn.Linear(WIDTH, LABELS)
        drawn(self, nn.init.zeros_)

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Frames [size, FRAMES, COEFFICIENTS], labels [size, MOST] and how many of them count [size]."""
        frames = torch.randn(size, FRAMES, COEFFICIENTS, generator=generator)
        steps = torch.randint(1, LABELS - 1, (size, MOST), generator=generator)  # from a label to the next, another one
        lengths = torch.randint(LEAST, MOST + 1, (size,), generator=generator)
        return frames, steps.cumsum(1) % (LABELS - 1), lengths

    def loss(self, *batch: Tensor) -> Tensor:
        frames, labels, lengths = batch
        chances = clipped(self.last(self.features(frames))).log_softmax(2).transpose(0, 1)
        seen = self.frames_of(lengths)
        return nn.functional.ctc_loss(chances, labels, seen, lengths, blank=LABELS - 1, reduction="sum")

    def features(self, frames: Tensor) -> Tensor:
        """What the last layer reads [size, FRAMES, WIDTH]."""
        for layer in self.layers:
            frames = clipped(layer(frames))
        return frames

    def frames_of(self, lengths: Tensor) -> Tensor:
        """How many frames CTC looks at."""
        return lengths


class SpeechRecurrent(Speech):
    """speech-recurrent: `speech` as it was meant. The recurrent layer stands between the third product and the last.

    The last layer reads the sum of both directions, as in Hannun et al., "Deep Speech" (2014). The original would hand
    on the two states of the last frame side by side, which do not fit that layer.
    """

    repeatable_on_gpu = False  # there CTC adds up gradients in any order

    def __init__(self) -> None:
        super().__init__()
        self.forwards, self.backwards = (nn.Linear(2 * WIDTH, WIDTH) for _ in range(2))
        drawn(self, glorot)

    def features(self, frames: Tensor) -> Tensor:
        in_time = super().features(frames).unbind(1)
        there, back = self._states(self.forwards, in_time), self._states(self.backwards, in_time[::-1])
        return torch.stack(there, 1) + torch.stack(back[::-1], 1)

    def frames_of(self, lengths: Tensor) -> Tensor:
        return torch.full_like(lengths, FRAMES)

    def _states(self, layer: nn.Linear, inputs: tuple[Tensor, ...]) -> list[Tensor]:
        """[size, WIDTH] after each input, each one from its input and the state before."""
        state, states = torch.zeros_like(inputs[0]), []
        for frame in inputs:
            state = clipped(layer(torch.cat((frame, state), 1)))
            states.append(state)
        return states


#: By name.
NETWORKS: dict[str, type[FathomNetwork]] = {
    "memnet": Memnet, "seq2seq": Seq2Seq, "speech": Speech, "speech-recurrent": SpeechRecurrent,
}  # fmt: skip
