"""Two made-up networks: a vision transformer, and a convolutional one that squeezes.

They are like those of the published lists, with what is odd about these: kernels that
take as long whatever they move, as if never warmed up, and biases and norms that are
stored for each sample of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from networks import Network, Tensor

MOVED_BYTES_PER_S = 1.3e12
FLOAT = 4


@dataclass(frozen=True)
class Times:
    """What kernels take beyond moving their bytes, in ms: forward, and backward."""

    forward: float = 0.0
    by_weight: float = 0.0
    by_input: float = 0.0


@dataclass(frozen=True)
class _Layer:
    kind: str
    op: str
    inputs: tuple[Tensor, ...]
    output: Tensor
    weights: tuple[Tensor, ...]
    kept: tuple[Tensor, ...]
    times: Times


class Tape:
    """Runs layers forward, then backward, and updates the weights at the end."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._layers: list[_Layer] = []
        self._gradients: dict[int, Tensor] = {}
        self._updates: list[tuple[Tensor, Tensor]] = []

    def weight(self, name: str, size: float) -> Tensor:
        """Add what is kept from iteration to iteration."""
        return self.network.tensor(name, "weight", size)

    def layer(
        self,
        kind: str,
        op: str,
        inputs: Sequence[Tensor],
        size: float,
        *,
        weights: Sequence[Tensor] = (),
        keeps: Sequence[Tensor] = (),
        saves: float = 0.0,
        scratch: float = 0.0,
        times: Times = Times(),
    ) -> Tensor:
        """Run a layer forward.

        Its backward kernels read `keeps`, and what it `saves` for them; what it writes
        to `scratch` nothing reads.
        """
        tensor = self.network.tensor
        output = tensor(f"{op}.out", "activation", size)
        saved = [tensor(f"{op}.saved", "activation", saves)] if saves else []
        extra = [tensor(f"{op}.scratch", "write_only", scratch)] if scratch else []
        written = [output, *saved, *extra]
        self._run(f"{kind}_Forward", op, [*inputs, *weights], written, times.forward)
        self._layers.append(
            _Layer(
                kind,
                op,
                (*inputs,),
                output,
                (*weights,),
                (*keeps, *saved),
                times,
            )
        )
        return output

    def add(self, op: str, left: Tensor, right: Tensor) -> Tensor:
        """Add two tensors, or one and a bias."""
        if right.role == "weight":
            return self.layer("Add", op, [left], left.size, weights=[right])
        return self.layer("Add", op, [left, right], left.size)

    def in_place(self, kind: str, op: str, tensor: Tensor) -> Tensor:
        """Run a layer on its input, and backward on the gradient."""
        self._run(f"{kind}_Forward", op, [tensor], [tensor], 0.0)
        self._layers.append(_Layer(kind, op, (tensor,), tensor, (), (tensor,), Times()))
        return tensor

    def backward(self, output: Tensor) -> None:
        """Run everything backward and update the weights."""
        gradient = self.network.tensor("loss.d_out", "gradient", output.size)
        self._run("Loss", "loss", [output], [gradient], 0.0)
        self._gradients[output.index] = gradient
        for layer in reversed(self._layers):
            self._backward(layer)
        for weight, of_weight in self._updates:
            self._run("Update", weight.name, [weight, of_weight], [weight], 0.0)

    def _backward(self, layer: _Layer) -> None:
        gradient = self._gradients.pop(layer.output.index)
        kind, op, times = layer.kind, layer.op, layer.times
        if layer.inputs == (layer.output,):
            self._run(f"{kind}_Backward", op, [gradient, *layer.kept], [gradient], 0.0)
            self._gradients[layer.output.index] = gradient
            return
        for weight in layer.weights:
            name = f"{weight.name}.d"
            of_weight = self.network.tensor(name, "weight_gradient", weight.size)
            # A bias' gradient is what comes in; that of others needs the inputs.
            needed = [] if kind == "Add" else [*layer.inputs]
            self._run(
                f"{kind}_Backward_Weight",
                op,
                [gradient, *needed],
                [of_weight],
                times.by_weight,
            )
            self._updates.append((weight, of_weight))
        for index, tensor in enumerate(layer.inputs):
            if tensor.role != "activation":
                continue
            if kind == "Add":
                self._accumulate(tensor, gradient, op)
                continue
            name = f"{op}.d_in{index}"
            of_input = self.network.tensor(name, "gradient", tensor.size)
            others = [other for other in layer.kept if other is not tensor]
            used = [*layer.weights, *(others if len(layer.inputs) > 1 else layer.kept)]
            self._run(
                f"{kind}_Backward_Input",
                op,
                [gradient, *used],
                [of_input],
                times.by_input,
            )
            self._accumulate(tensor, of_input, op)

    def _accumulate(self, tensor: Tensor, gradient: Tensor, op: str) -> None:
        """Add to a tensor's gradient, or make it that."""
        present = self._gradients.setdefault(tensor.index, gradient)
        if present is not gradient:
            self._run("Add_Gradients", op, [present, gradient], [present], 0.0)

    def _run(
        self,
        name: str,
        op: str,
        reads: Sequence[Tensor],
        writes: Sequence[Tensor],
        more_ms: float,
    ) -> None:
        moved = sum(tensor.size for tensor in (*reads, *writes))
        time_ms = more_ms + moved / MOVED_BYTES_PER_S * 1e3
        self.network.run(name, op, reads, writes, time_ms)


def transformer(
    *, batch: int = 1280, layers: int = 12, tokens: int = 64, hidden: int = 768
) -> Network:
    """Return an iteration of a vision transformer."""
    tape = Tape(Network())
    one = batch * tokens * hidden * FLOAT
    scores = batch * (hidden // 64) * tokens * tokens * FLOAT
    square = hidden * hidden * FLOAT

    def linear(op: str, x: Tensor, size: float, weight: float) -> Tensor:
        times = Times(forward=5.0, by_weight=5.0, by_input=17.0)
        weights = [tape.weight(f"{op}.weight", weight)]
        y = tape.layer("Linear", op, [x], size, weights=weights, times=times)
        return tape.add(f"{op}.bias", y, tape.weight(f"{op}.bias", size))

    def norm(op: str, x: Tensor) -> Tensor:
        scale = tape.weight(f"{op}.scale", one)
        weights = [scale, tape.weight(f"{op}.shift", hidden * FLOAT)]
        return tape.layer("LayerNorm", op, [x], one, weights=weights, keeps=[x])

    def dropout(op: str, x: Tensor) -> Tensor:
        return tape.layer("Dropout", op, [x], x.size, saves=x.size)

    x = tape.network.tensor("input", "input", one)
    x = linear("embed", x, one, square)
    for index in range(layers):
        at = f"layer{index}"
        y = norm(f"{at}.norm1", x)
        q, k, v = (linear(f"{at}.{part}", y, one, square) for part in "qkv")
        s = tape.layer("MatMul", f"{at}.scores", [q, k], scores, keeps=[q, k])
        s = tape.layer("Scale", f"{at}.scale", [s], scores)
        times = Times(by_input=20.0)
        p = tape.layer("Softmax", f"{at}.softmax", [s], scores, times=times)
        p = dropout(f"{at}.drop1", p)
        y = tape.layer("MatMul", f"{at}.context", [p, v], one, keeps=[p, v])
        y = dropout(f"{at}.drop2", linear(f"{at}.out", y, one, square))
        x = tape.add(f"{at}.add1", x, y)
        y = linear(f"{at}.up", norm(f"{at}.norm2", x), 4 * one, 4 * square)
        y = tape.layer("GeLU", f"{at}.gelu", [y], 4 * one, keeps=[y])
        y = dropout(f"{at}.drop3", linear(f"{at}.down", y, one, 4 * square))
        x = tape.add(f"{at}.add2", x, y)
    tape.backward(norm("norm", x))
    return tape.network


def squeezing_convolutions(
    *, batch: int = 1024, blocks: Sequence[int] = (3, 8, 36, 3)
) -> Network:
    """Return an iteration of residual blocks that weigh their channels."""
    tape = Tape(Network())
    convolutions = iter(range(1 << 20))

    def convolution(
        op: str, x: Tensor, channels: tuple[int, int], width: int, kernel: int = 1
    ) -> Tensor:
        # Three of five take long, however small they are.
        times = [
            400.0 if (3 * next(convolutions) + part) % 5 < 3 else 3.0
            for part in range(3)
        ]
        size = batch * channels[1] * width * width * FLOAT
        weight = channels[0] * channels[1] * kernel * kernel * FLOAT
        y = tape.layer(
            "Conv2d",
            op,
            [x],
            size,
            weights=[tape.weight(f"{op}.weight", weight)],
            times=Times(*times),
        )
        parts = [
            tape.weight(f"{op}.norm.{part}", channels[1] * FLOAT)
            for part in ("scale", "shift")
        ]
        return tape.layer(
            "BatchNorm2d",
            f"{op}.norm",
            [y],
            size,
            weights=parts,
            keeps=[y],
            saves=size,
            scratch=size,
            times=Times(forward=30.0, by_weight=10.0, by_input=30.0),
        )

    def weigh(op: str, x: Tensor, channels: int) -> Tensor:
        per_channel = batch * channels * FLOAT
        y = tape.layer("Pool", f"{op}.pool", [x], per_channel)
        for part, size in (("down", per_channel / 16), ("up", per_channel)):
            weight = tape.weight(f"{op}.{part}", channels * channels // 16 * FLOAT)
            y = tape.layer("Linear", f"{op}.{part}", [y], size, weights=[weight])
            y = tape.in_place("ReLU" if part == "down" else "Sigmoid", op, y)
        return tape.layer("Scale", f"{op}.scale", [x, y], x.size, keeps=[x, y])

    x = tape.network.tensor("input", "input", batch * 3 * 224 * 224 * FLOAT)
    x = tape.in_place("ReLU", "stem1", convolution("stem1", x, (3, 64), 112, 3))
    x = tape.in_place("ReLU", "stem2", convolution("stem2", x, (64, 128), 112, 3))
    pooled = batch * 128 * 56 * 56 * FLOAT
    x = tape.layer("MaxPool", "pool", [x], pooled, keeps=[x])
    channels, width = 128, 56
    for stage, count in enumerate(blocks):
        middle = 128 << stage
        for index in range(count):
            at = f"stage{stage}.block{index}"
            first = index == 0
            width = width // 2 if first and stage else width
            y = convolution(f"{at}.conv1", x, (channels, middle), width)
            y = tape.in_place("ReLU", f"{at}.relu1", y)
            y = convolution(f"{at}.conv2", y, (middle, 2 * middle), width, 3)
            y = tape.in_place("ReLU", f"{at}.relu2", y)
            y = convolution(f"{at}.conv3", y, (2 * middle, 2 * middle), width)
            y = weigh(f"{at}.weigh", y, 2 * middle)
            if first:
                x = convolution(f"{at}.skip", x, (channels, 2 * middle), width)
            channels = 2 * middle
            x = tape.in_place("ReLU", f"{at}.relu3", tape.add(f"{at}.add", x, y))
    tape.backward(tape.layer("Pool", "pool2", [x], batch * channels * FLOAT))
    return tape.network
