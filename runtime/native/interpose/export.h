#pragma once

// A hook carries libcuda's own name and is exported, so that a program linked directly
// against libcuda (Triton's launcher) is seen too.
#define TRANSIT_HOOK extern "C" __attribute__((visibility("default")))
