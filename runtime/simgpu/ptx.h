// The entries of a PTX text and the layout of their parameters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace simgpu {

struct Parameter {
  size_t offset;
  size_t bytes;
};

struct Entry {
  std::string name;
  std::vector<Parameter> parameters;

  size_t parameter_bytes() const {
    return parameters.empty() ? 0 : parameters.back().offset + parameters.back().bytes;
  }
};

// False if the text is not PTX, or an entry cannot be understood.
bool parse_ptx(std::string_view text, std::vector<Entry>& entries);

}  // namespace simgpu
