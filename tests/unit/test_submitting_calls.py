"""The shim counts the same calls as launches that the recorder records."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Of CUDA arrays, which have no address: recorded, as they touch memory on one side.
ARRAY_COPY = re.compile(r"cuMemcpy(DtoA|AtoD|HtoA|AtoH|AtoA)")


def hooked() -> set[str]:
    text = (ROOT / "runtime/native/interpose/hooks.def").read_text()
    found = set()
    for macro, first, second in re.findall(
        r"^(LAUNCH|ASYNC|SYNC|STREAM_WORK)\((\w+),\s*(\w*),", text, re.MULTILINE
    ):
        # The second argument is a suffix, but for LAUNCH, where it is a version.
        symbol = first + second if macro in ("ASYNC", "SYNC") else first
        found |= {symbol, symbol + ("_ptds" if macro == "SYNC" else "_ptsz")}
    return found


def recorded() -> set[str]:
    text = (ROOT / "recorder/native/api_calls.cpp").read_text()
    calls = set(re.findall(r"TRANSIT_CALL\(k\w+, \w+, (cu\w+), ", text))
    return {call for call in calls if not ARRAY_COPY.match(call)}


def test_the_shim_and_the_recorder_agree_on_what_a_launch_is() -> None:
    assert len(hooked()) > 60
    assert hooked() == recorded()


def test_what_is_for_a_per_thread_stream_says_so() -> None:
    text = (ROOT / "recorder/native/api_calls.cpp").read_text()
    rows = re.findall(r"TRANSIT_CALL\(k\w+, \w+, (\w+), (true|false)\)", text)
    assert {
        call.endswith(("_ptsz", "_ptds")) == (own == "true") for call, own in rows
    } == {True}
