#include "faults.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <string_view>

namespace simgpu {
namespace {

struct Rule {
  std::string function;
  uint64_t nth = 0;  // 0: every call
  int result = 0;
  std::atomic<uint64_t> calls{0};
};

bool parse_rule(const std::string& text, Rule& rule) {
  char function[128], nth[32], result[8];
  int end = 0;
  if (std::sscanf(text.c_str(), "%127[^:]:%31[^=]=%7[0-9]%n", function, nth, result,
                  &end) != 3 ||
      static_cast<size_t>(end) != text.size())
    return false;
  char* tail = nullptr;
  const bool every = std::string_view(nth) == "*";
  rule.nth = every ? 0 : std::strtoull(nth, &tail, 10);
  rule.function = function;
  rule.result = static_cast<int>(std::strtol(result, nullptr, 10));
  return every || (*tail == '\0' && rule.nth > 0);
}

std::deque<Rule>* parse_rules() {
  auto* rules = new std::deque<Rule>;
  const char* variable = std::getenv("TRANSIT_SIM_FAIL");
  std::string text = variable ? variable : "";
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string rule = text.substr(0, comma);
    if (!parse_rule(rule, rules->emplace_back())) {
      std::fprintf(stderr,
                   "transit simulated GPU: TRANSIT_SIM_FAIL: '%s' is not "
                   "function:nth=CUresult or function:*=CUresult; ignored\n",
                   rule.c_str());
      rules->pop_back();
    }
    text = comma == std::string::npos ? "" : text.substr(comma + 1);
  }
  return rules;
}

// cuMemcpyHtoD_v2_ptds -> cuMemcpyHtoD
std::string_view base_name(std::string_view symbol) {
  return symbol.substr(0, symbol.find('_'));
}

}  // namespace

int injected_fault(const char* symbol) {
  static std::deque<Rule>* rules = parse_rules();
  for (Rule& rule : *rules) {
    if (rule.function != symbol && rule.function != base_name(symbol)) continue;
    const uint64_t call = rule.calls.fetch_add(1) + 1;
    if (rule.nth == 0 || rule.nth == call) return rule.result;
  }
  return 0;
}

bool cupti_loses(std::string_view what) {
  static const char* variable = std::getenv("TRANSIT_SIM_CUPTI_LOSES");
  std::string_view text = variable ? variable : "";
  while (!text.empty()) {
    const size_t comma = text.find(',');
    if (text.substr(0, comma) == what) return true;
    text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
  }
  return false;
}

uint64_t slow_copy_us() {
  static const char* variable = std::getenv("TRANSIT_SIM_SLOW_COPY_US");
  static const uint64_t microseconds =
      variable ? std::strtoull(variable, nullptr, 10) : 0;
  return microseconds;
}

}  // namespace simgpu
