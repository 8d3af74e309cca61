// The variables that the launcher of the job made.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <string>

namespace transit {

// The first of the variables that is set and is a number.
inline uint32_t number_from(std::initializer_list<const char*> variables,
                            uint32_t otherwise) {
  for (const char* variable : variables) {
    const char* text = getenv(variable);
    if (text == nullptr || *text == '\0') continue;
    char* end = nullptr;
    const unsigned long value = strtoul(text, &end, 10);
    if (*end == '\0' && value <= UINT32_MAX) return static_cast<uint32_t>(value);
  }
  return otherwise;
}

inline std::string text_from(const char* variable) {
  const char* text = getenv(variable);
  return text == nullptr ? "" : text;
}

}  // namespace transit
