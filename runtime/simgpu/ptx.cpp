#include "ptx.h"

#include <cctype>
#include <charconv>
#include <optional>

namespace simgpu {
namespace {

// CUDA's own limit on the parameters of a kernel.
constexpr size_t kMaxParameterBytes = 32764;

std::string without_comments(std::string_view text) {
  std::string kept;
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    if (rest.substr(0, 2) == "//") {
      i = text.find('\n', i);
    } else if (rest.substr(0, 2) == "/*") {
      const size_t end = text.find("*/", i + 2);
      i = end == std::string_view::npos ? end : end + 2;
    } else {
      kept += text[i++];
      continue;
    }
    if (i == std::string_view::npos) break;
    kept += ' ';
  }
  return kept;
}

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' ||
         c == '.' || c == '%';
}

// Words and single punctuation marks.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : text_(text) {}

  std::string_view next() {
    while (!text_.empty() && std::isspace(static_cast<unsigned char>(text_.front())))
      text_.remove_prefix(1);
    size_t length = text_.empty() ? 0 : 1;
    if (length && in_word(text_.front()))
      while (length < text_.size() && in_word(text_[length])) ++length;
    const std::string_view token = text_.substr(0, length);
    text_.remove_prefix(length);
    return token;
  }

 private:
  std::string_view text_;
};

std::optional<size_t> number(std::string_view token) {
  size_t value = 0;
  const auto [end, error] =
      std::from_chars(token.data(), token.data() + token.size(), value);
  if (error != std::errc() || end != token.data() + token.size()) return std::nullopt;
  return value;
}

// ".u64" -> 8; 0 if it is no type.
size_t type_bytes(std::string_view token) {
  if (token.size() < 3 || token[0] != '.' ||
      std::string_view("usbf").find(token[1]) == std::string_view::npos)
    return 0;
  const auto bits = number(token.substr(2));
  const bool known = bits && (*bits == 8 || *bits == 16 || *bits == 32 || *bits == 64);
  return known ? *bits / 8 : 0;
}

struct Declaration {
  size_t element_bytes = 0;
  size_t alignment = 0;
  size_t elements = 1;
};

// After ".param": [.align N] .type [.ptr [.space] [.align N]] name [ '[' N ']' ], up to
// and with the token that ends it.
bool parse_parameter(Tokens& tokens, Declaration& parameter, std::string_view& end) {
  for (end = tokens.next(); end != "," && end != ")"; end = tokens.next()) {
    if (end.empty()) return false;
    if (end == ".align" || end == "[") {
      const bool align = end == ".align";
      const auto value = number(tokens.next());
      if (!value) return false;
      // An alignment behind the type is that of what a pointer points to.
      if (!align) parameter.elements = *value;
      if (align && parameter.element_bytes == 0) parameter.alignment = *value;
    } else if (const size_t bytes = type_bytes(end)) {
      parameter.element_bytes = bytes;
    }
  }
  if (parameter.alignment == 0) parameter.alignment = parameter.element_bytes;
  const size_t alignment = parameter.alignment;
  return parameter.element_bytes > 0 && alignment <= 256 &&
         (alignment & (alignment - 1)) == 0 && parameter.elements > 0 &&
         parameter.elements <= kMaxParameterBytes;
}

bool parse_parameters(Tokens& tokens, Entry& entry) {
  std::string_view token = tokens.next();
  while (token != ")") {
    if (token != ".param") return false;
    Declaration declared;
    if (!parse_parameter(tokens, declared, token)) return false;
    const size_t aligned = declared.alignment - 1;
    const size_t offset = (entry.parameter_bytes() + aligned) & ~aligned;
    const size_t bytes = declared.element_bytes * declared.elements;
    if (offset + bytes > kMaxParameterBytes) return false;
    entry.parameters.push_back({offset, bytes});
    if (token == ",") token = tokens.next();
  }
  return true;
}

}  // namespace

bool parse_ptx(std::string_view text, std::vector<Entry>& entries) {
  const std::string code = without_comments(text);
  if (code.find(".version") == std::string::npos) return false;
  Tokens tokens(code);
  for (std::string_view token = tokens.next(); !token.empty(); token = tokens.next()) {
    if (token != ".entry") continue;
    Entry entry;
    entry.name = tokens.next();
    if (entry.name.empty()) return false;
    if (tokens.next() == "(" && !parse_parameters(tokens, entry)) return false;
    entries.push_back(std::move(entry));
  }
  return true;
}

}  // namespace simgpu
