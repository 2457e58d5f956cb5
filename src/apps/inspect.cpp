// lily inspect: what a checkpoint is, as a page or as JSON.
#include "model/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "apps/commands.h"
#include "base/json.h"
#include "base/quote.h"
#include "base/sha256.h"
#include "model/known_files.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lily::apps {
namespace {

// A text file of the checkpoint: what it is, and whether it is the published one.
struct TextFile {
  std::string summary;
  std::string sha256;
  bool published = false;
};

TextFile describe_file(std::string_view name, const std::string& text, std::string summary) {
  TextFile file{.summary = std::move(summary), .sha256 = sha256_hex(text)};
  for (const KnownFile& known : known_files())
    if (known.name == name) file.published = known.sha256 == file.sha256;
  return file;
}

TextFile describe_tokenizer(const Checkpoint& checkpoint) {
  const std::string& text = checkpoint.texts().tokenizer_json;
  const auto tokenizer = Tokenizer::load(text, checkpoint.texts().tokenizer_config);
  return describe_file("tokenizer.json", text,
                       tokenizer ? fmt::format("{} ids", with_commas(static_cast<std::uint64_t>(tokenizer->size())))
                                 : "not usable: " + tokenizer.error().message);
}

TextFile describe_template(const Checkpoint& checkpoint) {
  const std::string& text = checkpoint.texts().chat_template;
  if (text.empty()) return {.summary = "none", .sha256 = {}};
  const auto chat_template = ChatTemplate::load(text);
  return describe_file("chat_template.jinja", text,
                       chat_template ? chat_template->name() : "not usable: " + chat_template.error().message);
}

struct PartSize {
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
};

PartSize size_of(const CheckpointReport& report, TensorInfo::Part part) {
  PartSize size;
  for (const TensorInfo& tensor : report.tensors) {
    if (tensor.part != part) continue;
    ++size.tensors;
    size.bytes += tensor.bytes;
  }
  return size;
}

const char* part_name(TensorInfo::Part part) {
  switch (part) {
    case TensorInfo::Part::Text:
      return "text";
    case TensorInfo::Part::Vision:
      return "vision";
    case TensorInfo::Part::Mtp:
      return "mtp";
  }
  return "";
}

json::Object text_file_json(const TextFile& file) {
  return {{"summary", file.summary}, {"sha256", file.sha256}, {"published", file.published}};
}

void print_json(const CheckpointReport& report, bool tensors) {
  const Checkpoint& checkpoint = report.checkpoint;
  json::Object parts;
  for (const auto part : {TensorInfo::Part::Text, TensorInfo::Part::Vision, TensorInfo::Part::Mtp}) {
    const PartSize size = size_of(report, part);
    parts.emplace(part_name(part), json::Object{{"tensors", size.tensors}, {"bytes", size.bytes}});
  }
  json::Object object{{"id", checkpoint.id()},
                      {"shape", checkpoint.shape().name},
                      {"parameters", report.n_parameters},
                      {"max_positions", checkpoint.max_positions()},
                      {"files", report.n_files},
                      {"parts", parts},
                      {"quantization", json::Object{{"group_size", kGroupSize},
                                                    {"modules_4bit", report.n_modules_4bit},
                                                    {"modules_8bit", report.n_modules_8bit}}},
                      {"stop_ids", json::Array(checkpoint.stop_ids().begin(), checkpoint.stop_ids().end())},
                      {"tokenizer", text_file_json(describe_tokenizer(checkpoint))},
                      {"chat_template", text_file_json(describe_template(checkpoint))},
                      {"fingerprint", checkpoint.fingerprint()},
                      {"notes", json::Array(checkpoint.notes().begin(), checkpoint.notes().end())}};
  if (tensors) {
    json::Array& list = object.emplace("tensors", json::Array()).first->value().get_array();
    for (const TensorInfo& tensor : report.tensors)
      list.push_back(json::Object{{"name", tensor.name},
                                  {"dtype", tensor.dtype},
                                  {"shape", json::Array(tensor.dims.begin(), tensor.dims.end())},
                                  {"bytes", tensor.bytes},
                                  {"file", tensor.file},
                                  {"part", part_name(tensor.part)}});
  }
  fmt::print("{}\n", json::dump(object));
}

void print_line(std::string_view key, const std::string& value) {
  fmt::print("{:<14} {}\n", key, value);
}

void print_text_file(std::string_view key, const TextFile& file) {
  const char* origin = file.published ? ", the published file" : "";
  print_line(key, file.sha256.empty()
                      ? file.summary
                      : fmt::format("{}{}, SHA-256 {}", file.summary, origin, file.sha256.substr(0, 16)));
}

void print_page(const CheckpointReport& report, bool tensors) {
  const Checkpoint& checkpoint = report.checkpoint;
  const Shape& s = checkpoint.shape();
  print_line("name", checkpoint.id());
  print_line("shape",
             fmt::format("{}: {} layers ({} Gated DeltaNet, {} attention), hidden {}, {} experts of {}, {} active",
                         s.name, s.n_layers, s.n_gdn_layers(), s.n_attention_layers(), s.hidden, s.n_experts,
                         s.expert_dim, s.n_active));
  print_line("parameters", with_commas(report.n_parameters));
  for (const auto part : {TensorInfo::Part::Text, TensorInfo::Part::Vision, TensorInfo::Part::Mtp})
    if (const PartSize size = size_of(report, part); size.tensors > 0)
      print_line(part_name(part), fmt::format("{} tensors, {} bytes ({})", with_commas(size.tensors),
                                              with_commas(size.bytes), human_bytes(size.bytes)));
  print_line("files", std::to_string(report.n_files));
  print_line("quantisation", fmt::format("MLX affine, group {}: {} modules of 4 bits, {} of 8", kGroupSize,
                                         report.n_modules_4bit, report.n_modules_8bit));
  print_line("context", with_commas(static_cast<std::uint64_t>(checkpoint.max_positions())) + " tokens");
  print_line("stop ids", fmt::format("{}", fmt::join(checkpoint.stop_ids(), ", ")));
  print_text_file("tokenizer", describe_tokenizer(checkpoint));
  print_text_file("chat template", describe_template(checkpoint));
  print_line("fingerprint", checkpoint.fingerprint().substr(0, 16));
  for (const std::string& note : checkpoint.notes()) print_line("note", note);
  if (!tensors) return;
  fmt::print("\n");
  for (const TensorInfo& tensor : report.tensors)
    fmt::print("{:<72} {:<4} [{}]  {}  {}\n", tensor.name, tensor.dtype, fmt::join(tensor.dims, ", "),
               with_commas(tensor.bytes), tensor.file);
}

}  // namespace

int run_inspect(const InspectOptions& options) {
  const auto report = inspect_checkpoint(options.directory);
  if (!report) {
    fmt::print(stderr, "lily: {}\n", report.error().message);
    return kExitFailed;
  }
  if (options.json)
    print_json(*report, options.tensors);
  else
    print_page(*report, options.tensors);
  return kExitOk;
}

}  // namespace lily::apps
