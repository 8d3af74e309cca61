// Windows of a plan, enacted around each piece of work. Off unless the plan has any.
#pragma once

#include <atomic>

#include "runtime/native/windows/work.h"

namespace transit::windows {

inline std::atomic<bool> g_is_on{false};

inline bool is_on() { return g_is_on.load(std::memory_order_relaxed); }

// Around the driver's call, on the thread that makes it; only while is_on().
inline void before(const Work&) {}
inline void after(const Work&, CUresult) {}

}  // namespace transit::windows
