// Values first (a ninth of the bytes), then hashes of everything where hashes are known.
#include "model/verify.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>

#include "base/quote.h"
#include "base/sha256.h"
#include "model/checkpoint.h"
#include "model/known_files.h"
#include "model/layout.h"
#include "model/model_files.h"
#include "model/shards.h"

namespace lily {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{8} << 20;

using Outcome = VerifyLine::Outcome;

// Stored values of norms are the multipliers themselves, near one. Near zero: somebody took the original file's
// zero-centred values for them (or the other way round, near two).
constexpr double kLeastNormMean = 0.2;

struct FloatCheck {
  std::string name;
  TensorView view;
  bool is_norm = false;  // of those that are stored as 1 + w in the original
};

std::vector<FloatCheck> float_tensors(const Shape& shape, const TextWeights& weights) {
  TextWeights layout = weights;  // the same views at the places that the modules point to
  std::vector<FloatCheck> checks;
  for (const Module& module : text_modules(shape, layout)) {
    if (module.kind == Module::Kind::Plain) {
      const bool is_norm = module.name.ends_with("norm") && module.name.find("linear_attn") == std::string::npos;
      checks.push_back({mlx_name(module.name) + std::string(module.suffix), *module.plain, is_norm});
    } else {
      checks.push_back({mlx_name(module.name) + ".scales", module.affine->scales});
      checks.push_back({mlx_name(module.name) + ".biases", module.affine->biases});
    }
  }
  return checks;
}

class Verifier {
 public:
  Verifier(const std::filesystem::path& directory, const VerifySpec& spec) : directory_(directory), spec_(spec) {}

  Result<VerifyReport> run() {
    LILY_TRY(const Checkpoint checkpoint, Checkpoint::open(directory_));
    LILY_TRY(ModelFiles files, ModelFiles::open_directory(directory_));
    add(Outcome::Passed, fmt::format("configuration: {}", checkpoint.shape().name));
    add(Outcome::Passed,
        fmt::format("weight files: index, headers, sizes, {} of text tensors", human_bytes(checkpoint.text_bytes())));
    for (const std::string& note : checkpoint.notes()) add(Outcome::Note, note);
    LILY_TRY(const bool known, is_known_revision(files));
    if (spec_.quick) {
      add(Outcome::NotChecked, "values and SHA-256: not read with --quick");
      return std::move(report_);
    }
    const std::vector<FloatCheck> checks = float_tensors(checkpoint.shape(), checkpoint.weights());
    for (const FloatCheck& check : checks) total_ += check.view.bytes;
    if (known)
      for (const KnownFile& file : known_files()) total_ += file.bytes;
    check_values(checkpoint, checks);
    if (known) {
      LILY_TRY_VOID(check_hashes(files));
    } else {
      add(Outcome::NotChecked,
          fmt::format("SHA-256: no published values for these files (only for {})", kKnownRevision));
    }
    return std::move(report_);
  }

 private:
  void add(Outcome outcome, std::string text) { report_.lines.push_back({outcome, std::move(text)}); }

  void report(std::uint64_t bytes) {
    done_ += bytes;
    if (spec_.progress) spec_.progress(done_, total_);
  }

  // By the sizes of the weight files: then a file that differs is damaged, and not another model.
  Result<bool> is_known_revision(ModelFiles& files) const {
    for (const KnownFile& file : known_files()) {
      if (!file.name.ends_with(".safetensors")) continue;
      if (!files.has(file.name)) return false;
      LILY_TRY(const std::span<const std::byte> bytes, files.map(std::string(file.name)));
      if (bytes.size() != file.bytes) return false;
    }
    return true;
  }

  void check_values(const Checkpoint& checkpoint, const std::vector<FloatCheck>& checks) {
    std::vector<std::string> bad, shifted;
    for (const FloatCheck& check : checks) {
      double sum = 0;
      bool finite = true;
      const std::int64_t n = check.view.count();
      for (std::int64_t i = 0; i < n; ++i) {
        const float value = check.view.load_float(i);
        finite = finite && std::isfinite(value);
        sum += static_cast<double>(value);
      }
      if (!finite) bad.push_back(check.name);
      if (check.is_norm && finite && sum / static_cast<double>(n) < kLeastNormMean) shifted.push_back(check.name);
      checkpoint.release(check.view);
      report(check.view.bytes);
    }
    if (bad.empty())
      add(Outcome::Passed,
          fmt::format("values: scales, biases, norms and gates of {} tensors are finite", checks.size()));
    else
      add(Outcome::Failed, fmt::format("values: NaN or infinity in {} tensor{}: {}; the file is damaged", bad.size(),
                                       bad.size() == 1 ? "" : "s", first_few(bad)));
    if (!shifted.empty())
      add(Outcome::Failed,
          fmt::format("norms: {} look zero-centred ({}); they must be stored as the multiplier, 1 + w; convert again",
                      shifted.size(), first_few(shifted)));
  }

  Result<void> check_hashes(ModelFiles& files) {
    std::size_t n_equal = 0;
    for (const KnownFile& known : known_files()) {
      const std::string name(known.name);
      if (!files.has(name)) {
        add(Outcome::NotChecked, name + ": not there");
        continue;
      }
      LILY_TRY(std::span<const std::byte> rest, files.map(name));
      Sha256 hash;
      while (!rest.empty()) {
        const std::span<const std::byte> block = rest.first(std::min(kBlockBytes, rest.size()));
        hash.update(block);
        files.release(block);
        report(block.size());
        rest = rest.subspan(block.size());
      }
      if (const std::string found = hash.hex(); found == known.sha256)
        ++n_equal;
      else
        add(Outcome::Failed,
            fmt::format("{}: SHA-256 expected {}, found {}; download it again", name, known.sha256, found));
    }
    add(n_equal > 0 ? Outcome::Passed : Outcome::NotChecked,
        fmt::format("SHA-256: {} of {} files are those of {}", n_equal, known_files().size(), kKnownRevision));
    return {};
  }

  const std::filesystem::path& directory_;
  const VerifySpec& spec_;
  VerifyReport report_;
  std::uint64_t done_ = 0, total_ = 0;
};

}  // namespace

bool VerifyReport::sound() const {
  return std::ranges::none_of(lines, [](const VerifyLine& line) { return line.outcome == Outcome::Failed; });
}

Result<VerifyReport> verify_checkpoint(const std::filesystem::path& directory, const VerifySpec& spec) try {
  return Verifier(directory, spec).run();
} catch (const std::exception& exception) {
  return fail(ErrorCode::OutOfMemory, "{}: {}", directory.string(), exception.what());
}

}  // namespace lily
