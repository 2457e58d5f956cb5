// Figures of fidelity over teacher-forced positions: perplexity, and against a reference top-1 agreement and KL.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/json.h"
#include "model/shape.h"

namespace lily::apps {

// Sums the surprise of the true next tokens under one model.
class Perplexity {
 public:
  // logits: [V] after which `next` really came; rows that hold -infinity are outside the vocabulary.
  void add(std::span<const float> logits, TokenId next);
  std::int64_t count() const { return count_; }
  double mean_nll() const;  // nats a token
  double value() const;

 private:
  double nll_sum_ = 0;
  std::int64_t count_ = 0;
};

// A position where the reference and this model have different best tokens.
struct Disagreement {
  std::int64_t position = 0;
  TokenId reference = 0, own = 0;
  double margin = 0;  // how much higher the reference puts its own best token than the other: 0 is a tie
};

class Comparison {
 public:
  void add(std::int64_t position, std::span<const float> reference, std::span<const float> own);
  std::int64_t count() const { return count_; }
  double agreement() const;  // share of positions with the same best token
  double mean_kl() const;    // KL(reference || own), nats
  double largest_kl() const { return largest_kl_; }
  double rms_difference() const;  // of logits, both centred: a constant shift changes no probability
  const std::vector<Disagreement>& disagreements() const { return disagreements_; }
  double largest_margin() const;

 private:
  std::int64_t count_ = 0;
  double kl_sum_ = 0, largest_kl_ = 0, square_sum_ = 0;
  std::vector<Disagreement> disagreements_;
};

// The best token, ties to the lower id.
TokenId best_token(std::span<const float> logits);

json::Object to_json(const Comparison& comparison);

}  // namespace lily::apps
