// The reference against logits that transformers computed from the same weights (tests/oracle/data, made by
// tests/oracle/make_transformers_goldens.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/json.h"
#include "base/sha256.h"
#include "model/checkpoint.h"
#include "support/source_dir.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// SHA-256 over all shards in the order of their names.
std::string shards_hash(const fs::path& checkpoint) {
  std::set<fs::path> shards;
  for (const auto& entry : fs::directory_iterator(checkpoint))
    if (entry.path().extension() == ".safetensors") shards.insert(entry.path());
  Sha256 sha;
  for (const fs::path& shard : shards) sha.update(read(shard));
  return sha.hex();
}

template <class T>
std::vector<T> numbers(const json::Value& array) {
  std::vector<T> result;
  for (const json::Value& value : array.as_array()) result.push_back(value.to_number<T>());
  return result;
}

void check(Backend& backend, const json::Value& text) {
  const auto tokens = numbers<TokenId>(text.at("tokens"));
  const std::size_t vocab = static_cast<std::size_t>(backend.shape().vocab);
  std::vector<float> logits(tokens.size() * vocab);
  auto sequence = *backend.create(std::ssize(tokens));
  const std::size_t chunk = static_cast<std::size_t>(backend.max_batch_tokens());
  for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const std::size_t n = std::min(chunk, tokens.size() - begin);
    StepItem item{.sequence = sequence.get(),
                  .tokens = std::span(tokens).subspan(begin, n),
                  .want = Want::AllLogits,
                  .logits = std::span(logits).subspan(begin * vocab, n * vocab)};
    ASSERT_TRUE(backend.step({&item, 1}));
  }

  const double unit = text.at("rms").to_number<double>();
  double worst = 0;
  for (const json::Value& row : text.at("rows").as_array()) {
    const std::size_t begin = row.at("position").to_number<std::size_t>() * vocab;
    const auto ids = numbers<std::size_t>(row.at("ids"));
    const auto want = numbers<double>(row.at("logits"));
    for (std::size_t i = 0; i < ids.size(); ++i) worst = std::max(worst, std::fabs(logits[begin + ids[i]] - want[i]));
  }
  EXPECT_LT(worst, 5e-3 * unit);
  std::printf("%zu tokens: largest difference %.1e of the logits' spread\n", tokens.size(), worst / unit);

  const auto top = numbers<std::size_t>(text.at("top"));
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const auto row = std::span(logits).subspan(t * vocab, vocab);
    EXPECT_LT(*std::max_element(row.begin(), row.end()) - row[top[t]], 2e-3 * unit) << "position " << t;
  }
}

TEST(ReferenceGoldens, LogitsOfTransformers) {
  const fs::path root = source_dir();
  const auto goldens = json::parse(read(root / "tests/oracle/data/transformers_lily_tiny.json"));
  ASSERT_TRUE(goldens) << goldens.error().message;
  const json::Value& manifest = goldens->at("manifest");
  const fs::path directory = root / manifest.at("checkpoint").as_string().c_str();
  ASSERT_EQ(shards_hash(directory), manifest.at("checkpoint_sha256").as_string().c_str())
      << "the weights are not those of the stored logits; run: " << manifest.at("command").as_string().c_str();

  const auto checkpoint = Checkpoint::open(directory);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  auto backend = *make_reference_backend(*checkpoint, {});
  for (const json::Value& text : goldens->at("texts").as_array()) check(*backend, text);
}

}  // namespace
}  // namespace lily
