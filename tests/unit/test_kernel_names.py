from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transit.kernel_names import demangle, shorten

FILL = (
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEE"
    "St5arrayIPcLm1EEEEviT0_T1_"
)


def test_symbols_are_demangled() -> None:
    assert demangle(FILL) == (
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor"
        "<float>, std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, "
        "std::array<char*, 1ul>)"
    )


@pytest.mark.parametrize(
    "name", ["forward", "", "_Z", "_Znonsense", "cuMemcpyDtoHAsync_v2", "_Z\0"]
)
def test_other_names_stay(name: str) -> None:
    assert demangle(name) == name
    assert shorten(name) == name


@pytest.mark.parametrize(
    ("declaration", "short"),
    [
        ("axpy(float*, float, int)", "axpy"),
        (
            demangle(FILL),
            "vectorized_elementwise_kernel<FillFunctor<float>, array<char*>>",
        ),
        ("void (anonymous namespace)::soft<float, float, 8, true>()", "soft<float>"),
        ("void a::b<(a::Mode)1, a::c<long> const*, false>(int)", "b<c<long> const*>"),
        ("void k<a::b<int>::Policy, unsigned int, -1>()", "k<Policy, unsigned int>"),
        (
            "void k<4, at::gelu(at::Tensor&)::{lambda()#2}::operator()() const::"
            "{lambda(float)#1}, 2ul>(int)",
            "k<gelu>",
        ),
        ("void k<sum<int>::operator()(int)::{lambda(int)#1}>(int)", "k<sum<int>>"),
        ("void k<a<b<c<d>>>>(int)", "k<a<b>>"),
    ],
)
def test_short_names_keep_what_tells_kernels_apart(
    declaration: str, short: str
) -> None:
    assert shorten(declaration) == short


@given(st.text("ab:<>(){}[], 1_", max_size=40))
def test_any_name_has_a_short_one(name: str) -> None:
    assert bool(shorten(name)) == bool(name)
