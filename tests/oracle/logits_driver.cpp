// Runs a backend for the oracles: logits_driver CHECKPOINT BACKEND OUT [N_GREEDY] < token ids
// Writes the logits of every token as float32 [T, V] to OUT, then prints N_GREEDY greedy tokens that follow.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "model/checkpoint.h"

namespace {

using lily::Backend;
using lily::Result;
using lily::StepItem;
using lily::TokenId;
using lily::Want;

Result<std::unique_ptr<Backend>> make(std::string_view name, const lily::Checkpoint& checkpoint) {
  if (name == "reference") return lily::make_reference_backend(checkpoint, {});
  if (name == "cpu") return lily::make_cpu_backend(checkpoint, {});
  return lily::fail(lily::ErrorCode::InvalidArgument, "backend {}: expected reference or cpu", name);
}

Result<void> run(const char* directory, std::string_view backend_name, const char* out_path, int n_greedy) {
  LILY_TRY(auto checkpoint, lily::Checkpoint::open(directory));
  LILY_TRY(auto backend, make(backend_name, checkpoint));
  std::vector<TokenId> tokens;
  for (TokenId id = 0; std::cin >> id;) tokens.push_back(id);
  const std::size_t vocab = static_cast<std::size_t>(backend->shape().vocab);
  std::vector<float> logits(tokens.size() * vocab);
  LILY_TRY(auto sequence, backend->create(std::ssize(tokens) + n_greedy));

  const std::size_t chunk = static_cast<std::size_t>(backend->max_batch_tokens());
  StepItem item{.sequence = sequence.get(), .tokens = {}, .want = Want::AllLogits, .logits = {}};
  for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const std::size_t n = std::min(chunk, tokens.size() - begin);
    item.tokens = std::span(tokens).subspan(begin, n);
    item.logits = std::span(logits).subspan(begin * vocab, n * vocab);
    LILY_TRY_VOID(backend->step({&item, 1}));
  }
  std::ofstream out(out_path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(logits.data()), static_cast<std::streamsize>(logits.size() * sizeof(float)));
  if (!out.flush()) return lily::fail(lily::ErrorCode::Io, "cannot write {}", out_path);

  const auto last = std::span(logits).last(vocab);
  TokenId next = static_cast<TokenId>(std::max_element(last.begin(), last.end()) - last.begin());
  for (int i = 0; i < n_greedy; ++i) {
    fmt::print("{}\n", next);
    item = {.sequence = sequence.get(), .tokens = {&next, 1}, .want = Want::Greedy, .logits = {}};
    LILY_TRY_VOID(backend->step({&item, 1}));
    next = item.greedy;
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: logits_driver CHECKPOINT reference|cpu OUT [N_GREEDY] < token ids\n");
    return 2;
  }
  const auto result = run(argv[1], argv[2], argv[3], argc > 4 ? std::atoi(argv[4]) : 0);
  if (!result) fmt::print(stderr, "{}\n", result.error().message);
  return result ? 0 : 1;
}
