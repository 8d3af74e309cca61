"""What the hook calls a job's memory, on a CPU."""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import weakref
from importlib.resources import files
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")


def load_labels() -> ModuleType:
    path = str(files("transit.recorder").joinpath("hook/transit_torch_labels.py"))
    spec = importlib.util.spec_from_file_location("transit_torch_labels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


hook = load_labels()


class Told:
    """Takes what the hook tells the recorder, through the same C types."""

    def __init__(self) -> None:
        self.labels: dict[str, set[int]] = {}
        self._clock_ns = 0

    def transit_recorder_timestamp_ns(self) -> int:
        self._clock_ns += 1
        return self._clock_ns

    def transit_recorder_labels(
        self, host_ns: int, addresses: bytes, names: bytes, count: int
    ) -> None:
        numbers = (ctypes.c_uint64 * count).from_buffer_copy(addresses)
        texts = names.decode().split("\0")
        assert texts.pop() == ""
        for name, address in zip(texts, numbers, strict=True):
            self.labels.setdefault(name, set()).add(address)


class Net(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(2)])
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


def train(model: Any, *optimizers: Any, steps: int = 1) -> dict[str, set[int]]:
    told = Told()
    labels = hook.Labels(torch, told)
    for _ in range(steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        model(torch.ones(3, 4)).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            labels.note_gradients(optimizer)
    labels.push()
    return told.labels


@pytest.fixture(autouse=True)
def _only_own_modules() -> None:
    gc.collect()  # of the test before


@pytest.mark.parametrize(
    "options", [{}, {"foreach": True}, {"fused": True}, {"amsgrad": True}]
)
def test_all_an_adamw_job_keeps_has_its_name(options: dict[str, bool]) -> None:
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), **options)
    labels = train(model, optimizer)

    weight = model.blocks[1].weight
    assert labels["blocks.1.weight"] == {weight.data_ptr()}
    assert labels["blocks.1.weight, gradient"] == {weight.grad.data_ptr()}
    for key, state in optimizer.state[weight].items():
        assert labels[f"blocks.1.weight, {key}"] == {state.data_ptr()}
    assert labels["norm.running_mean"] == {model.norm.running_mean.data_ptr()}
    num_parameters = len(list(model.parameters()))
    assert sum(name.endswith(", exp_avg") for name in labels) == num_parameters


def test_gradients_are_named_at_every_step() -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters())
    told = Told()
    labels = hook.Labels(torch, told)
    kept, places = [], set()
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
        labels.note_gradients(optimizer)
        kept.append(model.norm.weight.grad)  # so that the next is elsewhere
        places.add(kept[-1].data_ptr())
    optimizer.zero_grad()
    labels.push()
    assert told.labels["norm.weight, gradient"] == places
    assert len(places) == 3


def test_several_optimizers_share_the_names_of_their_model() -> None:
    model = Net()
    first = torch.optim.SGD(model.blocks.parameters(), momentum=0.9)
    second = torch.optim.Adam(model.norm.parameters())
    labels = train(model, first, second)
    assert "blocks.0.bias, momentum_buffer" in labels
    assert "norm.bias, exp_avg_sq" in labels
    assert "norm.bias, gradient" in labels


def test_a_parameter_of_no_module_is_named_by_its_place() -> None:
    parameter = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([parameter], momentum=0.9)
    labels = train(lambda x: x * parameter, optimizer)
    assert labels["SGD parameter 0"] == {parameter.data_ptr()}
    assert labels["SGD parameter 0, gradient"] == {parameter.grad.data_ptr()}
    assert "SGD parameter 0, momentum_buffer" in labels


def test_wrappers_leave_no_trace_in_the_names() -> None:
    model = Net()
    wrapper = torch.nn.Module()
    wrapper.module = torch.nn.Module()
    wrapper.module._orig_mod = model
    optimizer = torch.optim.SGD(model.parameters())
    labels = train(model, optimizer)
    assert wrapper.module._orig_mod is model
    assert labels["blocks.0.weight"] == {model.blocks[0].weight.data_ptr()}


def test_a_second_model_has_its_class_in_front() -> None:
    model, average = Net(), torch.nn.Linear(4, 4)
    labels = train(model, torch.optim.SGD(model.parameters()))
    assert labels["Linear.weight"] == {average.weight.data_ptr()}
    assert "blocks.0.weight" in labels


def test_tied_weights_are_named_once() -> None:
    model = Net()
    model.blocks[1].weight = model.blocks[0].weight
    labels = train(model, torch.optim.SGD(model.parameters()))
    assert "blocks.0.weight" in labels
    assert "blocks.1.weight" not in labels


def test_what_has_no_address_is_passed_over() -> None:
    embedding = torch.nn.Embedding(5, 4, sparse=True)
    lazy, meta = torch.nn.LazyLinear(3), torch.nn.Linear(3, 3, device="meta")
    optimizer = torch.optim.SGD(embedding.parameters())
    labels = train(lambda x: embedding(x.long()), optimizer)
    assert (len(list(lazy.parameters())), len(list(meta.parameters()))) == (2, 2)
    assert set(labels) == {"Embedding.weight"}  # its gradient is sparse: two tensors


def test_dtensors_are_where_their_local_part_is() -> None:
    distributed = torch.distributed
    if not distributed.is_available():
        pytest.skip("this torch has no torch.distributed")
    store = distributed.HashStore()
    distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    try:
        model = Net()
        torch.distributed.fsdp.fully_shard(
            model,
            mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)),
        )
        optimizer = torch.optim.AdamW(model.parameters())
        labels = train(model, optimizer)
        weight = model.blocks[1].weight
        assert labels["blocks.1.weight"] == {weight.to_local().data_ptr()}
        gradient = weight.grad.to_local().data_ptr()
        assert labels["blocks.1.weight, gradient"] == {gradient}
        state = optimizer.state[weight]["exp_avg"].to_local().data_ptr()
        assert labels["blocks.1.weight, exp_avg"] == {state}
    finally:
        distributed.destroy_process_group()


def test_nothing_of_the_job_is_kept_alive() -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters())
    labels = hook.Labels(torch, Told())
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    labels.note_gradients(optimizer)
    gone = [weakref.ref(model), weakref.ref(optimizer)]
    gone.append(weakref.ref(model.norm.weight))
    del model, optimizer
    gc.collect()
    assert [ref() for ref in gone] == [None, None, None]
    labels.push()


def test_what_poses_as_a_module_is_not_asked() -> None:
    class Proxy:
        @property
        def __class__(self) -> Any:
            raise AssertionError("asked")

    proxy = Proxy()
    model = Net()
    assert "norm.weight" in train(model, torch.optim.SGD(model.parameters()))
    assert type(proxy) is Proxy


@pytest.mark.parametrize(
    ("is_enabled", "owns", "first_us", "since_ns"),
    [
        (True, True, [9], 5000),
        (True, True, [], 5000),
        (True, False, [4, 9], 5000),  # what is older is there, so all since is
        (True, False, [9], 9000),  # may have wrapped
        (True, False, [], 20000),
        (False, True, [9], 20000),  # the job ended it
    ],
)
def test_a_history_is_whole_since_its_oldest_entry(
    is_enabled: bool,
    owns: bool,
    first_us: list[int],
    since_ns: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(files("transit.recorder").joinpath("hook")))
    hook_module = importlib.import_module("transit_torch_hook")
    monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: is_enabled, False)
    torch_hook = hook_module.TorchHook(torch, None)
    torch_hook._owns_history = owns
    entries = [{"time_us": time_us} for time_us in first_us]
    assert torch_hook._whole_since_ns(entries, 5000, 20000) == since_ns
    torch_hook._owns_history = True
    monkeypatch.setattr(hook_module, "MAX_HISTORY_ENTRIES", 1)
    full = [{"time_us": 12}]
    expected = 12000 if is_enabled else 20000
    assert torch_hook._whole_since_ns(full, 5000, 20000) == expected
