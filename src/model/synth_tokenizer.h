// A made-up tokenizer.json of the right size: the pipeline and added tokens of the real one, the 256 bytes, and
// merges drawn at random, so that text of any kind becomes valid ids and back.
#pragma once

#include <cstdint>
#include <string>

#include "model/shape.h"

namespace lily {

std::string make_tokenizer_json(const Shape& shape, std::uint64_t seed);
std::string make_tokenizer_config(const Shape& shape);

}  // namespace lily
