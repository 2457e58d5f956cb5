#include "apps/eval_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace lily::apps {
namespace {

constexpr std::size_t kListedDisagreements = 20;

// log(sum(exp(logits))), in double and safe for any finite logits.
double log_sum_exp(std::span<const float> logits) {
  const float highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - highest);
  return highest + std::log(sum);
}

}  // namespace

TokenId best_token(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void Perplexity::add(std::span<const float> logits, TokenId next) {
  LILY_CHECK(next >= 0 && static_cast<std::size_t>(next) < logits.size());
  nll_sum_ += log_sum_exp(logits) - logits[static_cast<std::size_t>(next)];
  ++count_;
}

double Perplexity::mean_nll() const {
  return count_ == 0 ? 0.0 : nll_sum_ / static_cast<double>(count_);
}
double Perplexity::value() const {
  return std::exp(mean_nll());
}

void Comparison::add(std::int64_t position, std::span<const float> reference, std::span<const float> own) {
  LILY_CHECK(reference.size() == own.size() && !own.empty());
  const double reference_sum = log_sum_exp(reference);
  const double own_sum = log_sum_exp(own);
  double kl = 0, squares = 0, shift = 0;
  std::int64_t finite = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (!std::isfinite(reference[i]) || !std::isfinite(own[i])) continue;  // masked rows
    const double p = std::exp(reference[i] - reference_sum);
    const double difference = static_cast<double>(reference[i]) - own[i];
    kl += p * (difference - reference_sum + own_sum);
    shift += difference;
    squares += difference * difference;
    ++finite;
  }
  const double n = static_cast<double>(std::max<std::int64_t>(finite, 1));
  kl = std::max(kl, 0.0);  // rounding may leave a tiny negative
  kl_sum_ += kl;
  largest_kl_ = std::max(largest_kl_, kl);
  square_sum_ += squares / n - (shift / n) * (shift / n);
  ++count_;
  const TokenId expected = best_token(reference);
  const TokenId found = best_token(own);
  if (expected == found) return;
  const double margin =
      static_cast<double>(reference[static_cast<std::size_t>(expected)]) - reference[static_cast<std::size_t>(found)];
  disagreements_.push_back({.position = position, .reference = expected, .own = found, .margin = margin});
}

double Comparison::agreement() const {
  if (count_ == 0) return 1;
  return 1.0 - static_cast<double>(disagreements_.size()) / static_cast<double>(count_);
}

double Comparison::mean_kl() const {
  return count_ == 0 ? 0.0 : kl_sum_ / static_cast<double>(count_);
}

double Comparison::rms_difference() const {
  return count_ == 0 ? 0.0 : std::sqrt(std::max(0.0, square_sum_ / static_cast<double>(count_)));
}

double Comparison::largest_margin() const {
  double margin = 0;
  for (const Disagreement& d : disagreements_) margin = std::max(margin, d.margin);
  return margin;
}

json::Object to_json(const Comparison& comparison) {
  std::vector<Disagreement> worst = comparison.disagreements();
  std::stable_sort(worst.begin(), worst.end(), [](const auto& a, const auto& b) { return a.margin > b.margin; });
  if (worst.size() > kListedDisagreements) worst.resize(kListedDisagreements);
  json::Array listed;
  for (const Disagreement& d : worst) {
    listed.push_back(
        json::Object{{"position", d.position}, {"reference", d.reference}, {"own", d.own}, {"margin", d.margin}});
  }
  return {{"positions", comparison.count()},
          {"top1_agreement", comparison.agreement()},
          {"disagreements", comparison.disagreements().size()},
          {"largest_margin", comparison.largest_margin()},
          {"worst", std::move(listed)},
          {"kl_mean", comparison.mean_kl()},
          {"kl_largest", comparison.largest_kl()},
          {"logit_rms_difference", comparison.rms_difference()}};
}

}  // namespace lily::apps
