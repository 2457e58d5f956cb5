// Any bytes as config.json, generation_config.json and index of a checkpoint: refused in one line, never a crash. The
// parts are separated by a zero byte.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "model/config.h"
#include "model/shards.h"

namespace {

using namespace lily;

void check_message(const Error& error) {
  LILY_CHECK(!error.message.empty() && error.message.find('\n') == std::string::npos && error.message.size() < 8192);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto take = [&] {
    const std::string_view part = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    return part;
  };
  const std::string_view config = take(), generation = take(), index = take();
  if (const auto parsed = parse_config(config, "config.json"))
    LILY_CHECK(parsed->shape != nullptr && parsed->max_positions > 0);
  else
    check_message(parsed.error());
  if (const auto ids = parse_stop_ids(generation, 2048, "generation_config.json"); !ids) check_message(ids.error());

  const EmbeddedFile memory[] = {{kIndexName, std::as_bytes(std::span(index))},
                                 {"model-00001-of-00002.safetensors", std::as_bytes(std::span(rest))}};
  ModelFiles files = ModelFiles::in_memory("fuzz", memory);
  if (const auto set = read_shards(files); !set) check_message(set.error());
  return 0;
}
