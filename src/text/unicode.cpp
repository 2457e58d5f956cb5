#include "text/unicode.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace lily::unicode {

namespace {

struct RangeStart {
  std::uint32_t code_point;
  std::uint8_t properties;
};

constexpr RangeStart kRanges[] = {
#include "text/unicode_tables.inc"
};

constexpr std::size_t kCodePoints = 0x110000;

// A flat megabyte: one load a character, and only the pages of the scripts in use are ever touched.
std::vector<std::uint8_t> expand() {
  std::vector<std::uint8_t> table(kCodePoints);
  for (std::size_t i = 0; i < std::size(kRanges); ++i) {
    const std::size_t end = i + 1 < std::size(kRanges) ? kRanges[i + 1].code_point : kCodePoints;
    std::fill(table.begin() + kRanges[i].code_point, table.begin() + static_cast<std::ptrdiff_t>(end),
              kRanges[i].properties);
  }
  return table;
}

}  // namespace

const std::uint8_t* properties() {
  static const std::vector<std::uint8_t> table = expand();
  return table.data();
}

}  // namespace lily::unicode
