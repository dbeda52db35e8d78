#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace lazyplug {

// Elements that are copied one after the other, and how many bytes each is after the one before.
struct ElementLine {
  int64_t size;
  int64_t to;   // in what is written
  int64_t from; // in what is read
};

template <size_t kItem>
void copy_elements(const ElementLine& line, char* to, const char* from) {
  for (int64_t i = 0; i < line.size; ++i) {
    std::memcpy(to + i * line.to, from + i * line.from, kItem);
  }
}

// `item` is the size of an element in bytes, a power of two up to 16.
inline void copy_line(const ElementLine& line, size_t item, char* to, const char* from) {
  const auto next = static_cast<int64_t>(item);
  if (line.to == next && line.from == next) {
    std::memmove(to, from, static_cast<size_t>(line.size) * item);
    return;
  }
  switch (item) {
    case 1:
      return copy_elements<1>(line, to, from);
    case 2:
      return copy_elements<2>(line, to, from);
    case 4:
      return copy_elements<4>(line, to, from);
    case 8:
      return copy_elements<8>(line, to, from);
    default:
      return copy_elements<16>(line, to, from);
  }
}

} // namespace lazyplug
