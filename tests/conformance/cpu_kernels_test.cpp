// Every kernel of every instruction set of this machine against the generic one, bit for bit, and the generic one
// against plain arithmetic in double. Depends on the kernels alone, so that it cross-compiles for AArch64
// (docs/kernels/cpu.md has the command).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/kernels.h"

namespace lily::cpu {
namespace {

using Floats = std::vector<float>;
constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

Floats random_floats(std::size_t n, unsigned seed, float range = 1.0f) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> distribution(-range, range);
  Floats values(n);
  for (float& value : values) value = distribution(random);
  return values;
}

std::uint16_t to_bf16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);
}
float from_bf16(std::uint16_t value) {
  const std::uint32_t bits = std::uint32_t{value} << 16;
  float wide;
  std::memcpy(&wide, &bits, sizeof wide);
  return wide;
}

// Bytes of random codes with sane scales and biases behind each block; at an odd address plus one is not needed, the
// arena aligns blocks.
std::vector<std::byte> random_stripe(int n_groups, int codes, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> scale(-0.05f, 0.05f);
  std::vector<std::byte> stripe;
  for (int g = 0; g < n_groups; ++g) {
    for (int i = 0; i < codes; ++i) stripe.push_back(static_cast<std::byte>(random()));
    for (int i = 0; i < 2 * kLanes; ++i) {
      const std::uint16_t bits = to_bf16(scale(random) * (i < kLanes ? 1.0f : 8.0f));
      stripe.push_back(static_cast<std::byte>(bits & 255));
      stripe.push_back(static_cast<std::byte>(bits >> 8));
    }
  }
  return stripe;
}

// Owns the storage of QuantRows.
struct Quantised {
  Quantised(int n_rows, int n_groups, int panel_rows, int planes)
      : codes(static_cast<std::size_t>(n_rows * n_groups * planes * kGroupSize)),
        scales(static_cast<std::size_t>(n_rows * n_groups)),
        sums(scales.size()),
        rows{codes.data(), scales.data(), sums.data(), n_rows, n_groups, panel_rows, planes} {}
  Panel panel(int index) const {
    const std::size_t entry = rows.panel_entry(index);
    return {codes.data() + entry * rows.entry_bytes(), scales.data() + entry, sums.data() + entry,
            rows.rows_of_panel(index)};
  }
  std::vector<std::int8_t> codes;
  Floats scales, sums;
  QuantRows rows;
};

Quantised quantise(const Kernels& kernels, const Floats& x, int n_rows, int n_groups, int planes) {
  Quantised q(n_rows, n_groups, kernels.panel_rows, planes);
  for (int r = 0; r < n_rows; ++r) {
    const std::size_t entry = q.rows.entry(r, 0);
    kernels.quantize(x.data() + r * n_groups * kGroupSize, n_groups, planes,
                     q.codes.data() + entry * q.rows.entry_bytes(), q.scales.data() + entry, q.sums.data() + entry,
                     q.rows.rows_of_panel(r / kernels.panel_rows));
  }
  return q;
}

// y [n_rows, 16] of one stripe.
Floats product4(const Kernels& kernels, const std::vector<std::byte>& stripe, const Floats& x, int n_rows, int n_groups,
                int planes) {
  const Quantised q = quantise(kernels, x, n_rows, n_groups, planes);
  Floats y(static_cast<std::size_t>(n_rows) * kLanes + 1, kPoison);
  for (int p = 0; p < q.rows.n_panels(); ++p)
    kernels.gemm4(stripe.data(), n_groups, q.panel(p), planes, y.data() + p * kernels.panel_rows * kLanes, kLanes);
  EXPECT_TRUE(std::isnan(y.back())) << "wrote past the end";
  y.pop_back();
  return y;
}

void expect_same_bits(const Floats& got, const Floats& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof(float)), 0)
        << what << " at " << i << ": " << got[i] << " for " << want[i];
  }
}

// Runs `compute` with every table and compares with the generic one.
void for_all_tables(const std::function<Floats(const Kernels&)>& compute, const std::string& what = "") {
  const Floats want = compute(generic_kernels());
  for (const Kernels* table : runnable_kernels())
    expect_same_bits(compute(*table), want, std::string(table->name) + " " + what);
}

TEST(CpuKernels, NamesWhatRunsHere) {
  std::string names;
  for (const Kernels* table : runnable_kernels()) names += std::string(table->name) + " ";
  std::printf("  tables: %s\n", names.c_str());
  EXPECT_EQ(runnable_kernels().back(), &generic_kernels());
}

TEST(CpuKernels, Product4IsTheSameEverywhereAndInEveryPanel) {
  for (int planes : {1, 2})
    for (int n_groups : {1, 2, 9})
      for (int n_rows : {1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 15, 16, 17, 33}) {
        const auto stripe = random_stripe(n_groups, kBlock4Codes, 3);
        const Floats x = random_floats(static_cast<std::size_t>(n_rows * n_groups * kGroupSize), 5, 3.0f);
        for_all_tables([&](const Kernels& k) { return product4(k, stripe, x, n_rows, n_groups, planes); },
                       std::to_string(n_rows) + " rows");
        // A row alone gives the bits that it gives among others.
        const Floats all = product4(*runnable_kernels().front(), stripe, x, n_rows, n_groups, planes);
        const std::size_t last = static_cast<std::size_t>(n_rows - 1),
                          width = static_cast<std::size_t>(n_groups) * kGroupSize;
        const Floats row(x.begin() + static_cast<std::ptrdiff_t>(last * width), x.end());
        expect_same_bits(product4(*runnable_kernels().front(), stripe, row, 1, n_groups, planes),
                         Floats(all.begin() + static_cast<std::ptrdiff_t>(last * kLanes), all.end()), "last row alone");
      }
}

TEST(CpuKernels, Product4IsTheProduct) {
  constexpr int kGroups = 8;
  const auto stripe = random_stripe(kGroups, kBlock4Codes, 3);
  const Floats x = random_floats(kGroups * kGroupSize, 5);
  for (int planes : {1, 2}) {
    const Floats y = product4(generic_kernels(), stripe, x, 1, kGroups, planes);
    for (int lane = 0; lane < kLanes; ++lane) {
      double sum = 0, magnitude = 0;
      for (int i = 0; i < kGroups * kGroupSize; ++i) {
        const std::byte* block = stripe.data() + i / kGroupSize * kBlock4Bytes;
        const int k = i % kGroupSize;
        const unsigned byte = static_cast<unsigned>(block[64 * (k / 8) + 4 * lane + k % 4]);
        const int code = static_cast<int>(k % 8 < 4 ? byte & 15u : byte >> 4);
        std::uint16_t scale, bias;
        std::memcpy(&scale, block + kBlock4Codes + 2 * lane, 2);
        std::memcpy(&bias, block + kBlock4Codes + 2 * (kLanes + lane), 2);
        const double w = double{from_bf16(scale)} * code + double{from_bf16(bias)};
        sum += w * double{x[static_cast<std::size_t>(i)]};
        magnitude += std::fabs(w * double{x[static_cast<std::size_t>(i)]});
      }
      EXPECT_NEAR(y[static_cast<std::size_t>(lane)], sum, magnitude * (planes == 2 ? 2e-5 : 5e-3));
    }
  }
}

TEST(CpuKernels, Product4WithExtremeCodes) {
  // All codes 15 and all activations at one end: the largest sums that a table must hold, 16-bit pairs included.
  std::vector<std::byte> stripe = random_stripe(2, kBlock4Codes, 1);
  for (int g = 0; g < 2; ++g) std::fill_n(stripe.begin() + g * kBlock4Bytes, kBlock4Codes, std::byte{0xff});
  for (float value : {1.0f, -1.0f, 0.0f, 1e-38f, 3e38f})
    for (int planes : {1, 2})
      for_all_tables([&](const Kernels& k) { return product4(k, stripe, Floats(128, value), 1, 2, planes); });
}

TEST(CpuKernels, NotANumberReachesTheResult) {
  const auto stripe = random_stripe(2, kBlock4Codes, 1);
  for (float poison : {kPoison, INFINITY, -INFINITY}) {
    Floats x = random_floats(128, 1);
    x[77] = poison;
    for (const Kernels* table : runnable_kernels())
      for (int planes : {1, 2})
        for (float y : product4(*table, stripe, x, 1, 2, planes)) EXPECT_TRUE(std::isnan(y)) << table->name;
  }
}

TEST(CpuKernels, Product8) {
  for (int n_groups : {1, 4})
    for (int n_rows : {1, 3, 4, 5, 9}) {
      const auto stripe = random_stripe(n_groups, kBlock8Codes, 2);
      const Floats x = random_floats(static_cast<std::size_t>(n_rows * n_groups * kGroupSize), 5);
      for_all_tables([&](const Kernels& k) {
        Floats sums(static_cast<std::size_t>(n_rows * n_groups)), y(static_cast<std::size_t>(n_rows) * kLanes, kPoison);
        k.group_sums(x.data(), n_rows * n_groups, sums.data());
        k.gemm8(stripe.data(), n_groups, x.data(), n_groups * kGroupSize, sums.data(), n_rows, y.data(), kLanes);
        return y;
      });
    }
}

TEST(CpuKernels, QuantisationIsExactToItsStep) {
  Floats x = random_floats(64 * 4, 9, 5.0f);
  std::fill_n(x.begin() + 64, 64, 0.0f);    // a silent group
  std::fill_n(x.begin() + 128, 64, -2.5f);  // a constant one
  for (int planes : {1, 2}) {
    const Quantised q = quantise(generic_kernels(), x, 1, 4, planes);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t g = i / 64, k = i % 64;
      const std::int8_t* codes = q.codes.data() + g * 64 * static_cast<std::size_t>(planes);
      const int value = planes == 2 ? 256 * codes[k] + codes[64 + k] : codes[k];
      EXPECT_NEAR(q.scales[g] * static_cast<float>(value), x[i], q.scales[g] * 0.5001f);
    }
    for (const Kernels* table : runnable_kernels()) {
      Quantised other = quantise(*table, x, 1, 4, planes);
      EXPECT_EQ(other.codes, q.codes) << table->name;
      expect_same_bits(other.scales, q.scales, "scales");
      expect_same_bits(other.sums, q.sums, "sums");
    }
  }
}

TEST(CpuKernels, NormsAndGates) {
  const Floats x = random_floats(256, 1, 4.0f), w = random_floats(256, 2), z = random_floats(256, 3, 40.0f);
  for_all_tables([&](const Kernels& k) {
    Floats y(256, kPoison);
    k.rms_norm(x.data(), w.data(), 256, y.data());
    return y;
  });
  for_all_tables([&](const Kernels& k) {
    Floats y(128, kPoison);
    k.l2_norm(x.data(), 1e-6f, 0.5f, y.data());
    return y;
  });
  for_all_tables([&](const Kernels& k) {
    Floats y(256, kPoison);
    k.mul_silu(z.data(), x.data(), 256, y.data());
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double want = double{x[i]} * double{z[i]} / (1.0 + std::exp(-double{z[i]}));
      EXPECT_NEAR(y[i], want, 1e-6 * std::fabs(want) + 1e-30);
    }
    return y;
  });
  for_all_tables([&](const Kernels& k) {
    Floats y(256, kPoison);
    k.attend_finish(x.data(), 3.0f, z.data(), y.data());
    return y;
  });
}

TEST(CpuKernels, GatesAtTheirExtremesStayFinite) {
  Floats z{0.0f,  -0.0f,  30.0f, -30.0f, 87.0f, -87.0f, 88.0f,  -88.0f,
           89.0f, -89.0f, 1e4f,  -1e4f,  3e38f, -3e38f, 1e-40f, -1e-40f};
  for_all_tables([&](const Kernels& k) {
    Floats y(16, kPoison);
    k.mul_silu(z.data(), Floats(16, 1.0f).data(), 16, y.data());
    for (std::size_t i = 0; i < 16; ++i) EXPECT_TRUE(std::isfinite(y[i])) << z[i];
    return y;
  });
}

TEST(CpuKernels, RotationAndScale) {
  const Floats x = random_floats(256, 1), angle = random_floats(32, 2, 3.0f);
  Floats cos(32), sin(32);
  for (std::size_t i = 0; i < 32; ++i) cos[i] = std::cos(angle[i]), sin[i] = std::sin(angle[i]);
  for_all_tables([&](const Kernels& k) {
    Floats y = x;
    k.rope_scale(y.data(), cos.data(), sin.data(), 32, 256, 0.0625f);
    return y;
  });
}

TEST(CpuKernels, ScatteredSum) {
  const Floats tile = random_floats(48, 1), weight = random_floats(3, 2);
  const int rows[3] = {4, 0, 2};
  for_all_tables([&](const Kernels& k) {
    Floats y = random_floats(5 * 20, 3);
    k.scatter_add(tile.data(), 3, rows, weight.data(), y.data(), 20);
    return y;
  });
}

TEST(CpuKernels, ConvolutionIsTheSameForAnyCut) {
  const Floats weight = random_floats(4 * 128, 1), x = random_floats(7 * 130, 2);
  for (int cut : {1, 2, 3, 7})
    for_all_tables([&](const Kernels& k) {
      Floats tail = random_floats(3 * 140, 3), y(7 * 128, kPoison), whole_tail = tail, whole(7 * 128, kPoison);
      for (int t = 0; t < 7; t += cut)
        k.conv_silu(x.data() + t * 130, 130, tail.data(), 140, weight.data(), std::min(cut, 7 - t), y.data() + t * 128);
      k.conv_silu(x.data(), 130, whole_tail.data(), 140, weight.data(), 7, whole.data());
      expect_same_bits(y, whole, "cut");
      expect_same_bits(tail, whole_tail, "tail");
      return y;
    });
}

TEST(CpuKernels, DeltaRuleOverManyTokens) {
  constexpr int kTokens = 37;
  const Floats q = random_floats(kTokens * 128, 1, 0.2f), k_rows = random_floats(kTokens * 128, 2, 0.15f);
  const Floats v = random_floats(kTokens * 128, 3);
  Floats decay = random_floats(kTokens, 4), beta = random_floats(kTokens, 5);
  for (float& value : decay) value = 0.9f + 0.1f * std::fabs(value);
  for (float& value : beta) value = std::fabs(value);
  decay[3] = 0.0f;
  for_all_tables([&](const Kernels& k) {
    Floats memory = random_floats(128 * 32, 6), y(kTokens * 128, kPoison);
    k.gdn_scan({memory.data(), q.data(), k_rows.data(), v.data(), decay.data(), beta.data(), y.data(), kTokens});
    memory.insert(memory.end(), y.begin(), y.end());
    return memory;
  });
}

struct Attended {
  Floats maximum, total, out;
};

Attended attend(const Kernels& k, const std::vector<std::uint16_t>& kv, const Floats& q, std::vector<int> visible) {
  const std::size_t rows = visible.size();
  Attended a{Floats(rows, -INFINITY), Floats(rows, 0.0f), Floats(rows * 256, 0.0f)};
  // Twice over the same block: the second meets a state.
  for (int turn = 0; turn < 2; ++turn)
    k.attend_block({kv.data(), kv.data() + 64 * 256, q.data(), visible.data(), a.maximum.data(), a.total.data(),
                    a.out.data(), static_cast<int>(rows)});
  return a;
}

TEST(CpuKernels, AttentionBlock) {
  std::vector<std::uint16_t> kv(2 * 64 * 256);
  const Floats values = random_floats(kv.size(), 1);
  for (std::size_t i = 0; i < kv.size(); ++i) kv[i] = to_bf16(values[i]);
  const std::vector<int> visible{64, 1, 0, 33, 64, 63, 2, 16, 17};
  const Floats q = random_floats(visible.size() * 256, 2);
  for_all_tables([&](const Kernels& k) {
    const Attended all = attend(k, kv, q, visible);
    for (std::size_t r = 0; r < visible.size(); ++r) {
      const Attended one = attend(k, kv,
                                  Floats(q.begin() + static_cast<std::ptrdiff_t>(r * 256),
                                         q.begin() + static_cast<std::ptrdiff_t>(r * 256 + 256)),
                                  {visible[r]});
      EXPECT_EQ(one.total[0], all.total[r]) << "row " << r;
      expect_same_bits(one.out,
                       Floats(all.out.begin() + static_cast<std::ptrdiff_t>(r * 256),
                              all.out.begin() + static_cast<std::ptrdiff_t>(r * 256 + 256)),
                       "row alone");
    }
    Floats result = all.out;
    result.insert(result.end(), all.total.begin(), all.total.end());
    Attended merged = all;
    const Attended span = attend(k, kv, q, std::vector<int>(visible.size(), 5));
    k.attend_merge(merged.maximum.data(), merged.total.data(), merged.out.data(), span.maximum.data(),
                   span.total.data(), span.out.data(), static_cast<int>(visible.size()));
    result.insert(result.end(), merged.out.begin(), merged.out.end());
    return result;
  });
}

TEST(CpuKernels, EmbeddingRow) {
  const auto block = random_stripe(2, 96, 4);  // 64 bytes of codes, 2 scales and 2 biases lie in there
  const auto parameters = random_stripe(1, 0, 5);
  for_all_tables([&](const Kernels& k) {
    Floats y(128, kPoison);
    k.embed_row(block.data(), parameters.data(), parameters.data() + 4, 2, y.data());
    return y;
  });
}

}  // namespace
}  // namespace lily::cpu
