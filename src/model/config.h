// config.json and generation_config.json: which of the known shapes this is, how it is quantised, where it stops.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/shape.h"

namespace lily {

struct ModelConfig {
  const Shape* shape = nullptr;
  std::int64_t max_positions = 0;
  std::vector<TokenId> eos_ids;
  bool mtp_layers = false;                       // the config promises a multi-token-prediction head
  std::map<std::string, int, std::less<>> bits;  // overrides by module name without prefix; others have 4

  int bits_of(std::string_view module) const;
};

// Everything that contradicts the shape is refused with the first such key, the value expected and the value found. The
// text part may be nested under "text_config" or flat. `label` is the file's name for messages.
Result<ModelConfig> parse_config(std::string_view text, const std::string& label);

// eos_token_id of generation_config.json: one id or a list. Empty if the file does not say.
Result<std::vector<TokenId>> parse_stop_ids(std::string_view text, int vocab, const std::string& label);

// The config.json of a converted checkpoint of `shape`, byte for byte as MLX writes it (for the real shape with its
// vision part it is the published file), and its generation_config.json.
std::string write_config(const Shape& shape);
std::string write_generation_config(const Shape& shape);

// Id of <|endoftext|>, the first of the added tokens.
TokenId first_added_id(const Shape& shape);

}  // namespace lily
