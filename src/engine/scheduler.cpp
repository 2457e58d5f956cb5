#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace lily {
namespace {

double seconds_between(EngineClock::time_point from, EngineClock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::int64_t most_prompt_tokens(const Backend& backend, const EngineOptions& options) {
  const std::int64_t most = backend.max_batch_tokens();
  return options.prefill_chunk > 0 ? std::min(options.prefill_chunk, most) : most;
}

// States that the cache holds, pages aside.
std::int64_t most_states(const Backend& backend, const EngineOptions& options) {
  if (options.cache_states > 0) return options.cache_states;
  const std::size_t state_bytes = std::max<std::size_t>(1, backend.sequence_bytes(0));
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(options.cache_bytes / state_bytes));
}

// Until a step is over and the cache has made room, its marks take memory on top of what the cache holds: an eighth of
// that, or one state. With the default budget these are 4 for the 35B shape.
std::size_t most_marks(const Backend& backend, const EngineOptions& options) {
  const std::int64_t most = std::min(most_states(backend, options) / 8, backend.max_batch_tokens());
  return static_cast<std::size_t>(std::max<std::int64_t>(1, most));
}

bool lacks_memory(const Result<void>& result) {
  return !result && result.error().code == ErrorCode::OutOfMemory;
}

}  // namespace

struct Scheduler::Running {
  Submission submission;
  Phase phase = Phase::Prefill;
  std::unique_ptr<Sequence> sequence;
  std::vector<TokenId> tokens;  // prompt, then answer
  std::int64_t n_prompt = 0;
  std::int64_t position = 0;
  std::vector<PlannedSnapshot> plan;  // those still ahead, ascending from next_planned
  std::size_t next_planned = 0;
  std::int64_t last_saved = 0;  // length of the newest snapshot, or of the cached prefix
  Finish finish;
  EngineClock::time_point admitted;
  EngineClock::time_point first_token;

  bool caches() const { return submission.request.use_cache; }
  std::int64_t n_completion() const { return std::ssize(tokens) - n_prompt; }
  std::int64_t capacity() const { return n_prompt + submission.limit; }
  std::span<const TokenId> first_tokens(std::int64_t n) const {
    return std::span(tokens).first(static_cast<std::size_t>(n));
  }
  std::span<const TokenId> done_tokens() const { return first_tokens(position); }
};

Scheduler::Scheduler(Backend& backend, const EngineOptions& options, std::unique_ptr<PrefixCache> cache,
                     StatsBoard& board)
    : backend_(backend),
      options_(options),
      cache_(std::move(cache)),
      board_(board),
      pacer_(options.busy_step_seconds, most_prompt_tokens(backend, options)),
      most_marks_(most_marks(backend, options)) {
  const auto most = static_cast<std::size_t>(options.max_active);
  active_.reserve(most);
  items_.reserve(most);
  work_.reserve(most);
  marks_.reserve(most_marks_);
  mark_kinds_.reserve(most_marks_);
  count_cache();
  publish();
}

Scheduler::~Scheduler() = default;

bool Scheduler::has_room_for(const Submission& submission) const {
  if (std::ssize(active_) >= options_.max_active) return false;
  return options_.kv_bytes == 0 || stats_.kv_reserved_bytes + submission.kv_bytes <= options_.kv_bytes;
}

// Calls make() again after the cache has given memory back, as long as it has any and memory is what is missing.
template <class Make>
auto Scheduler::with_memory(Make make) -> decltype(make()) {
  auto made = make();
  while (!made && made.error().code == ErrorCode::OutOfMemory && cache_ && cache_->shrink()) made = make();
  return made;
}

void Scheduler::admit(Submission submission) {
  auto owned = std::make_unique<Running>();
  Running& running = *owned;
  running.submission = std::move(submission);
  running.admitted = EngineClock::now();
  running.tokens = std::move(running.submission.request.prompt);
  running.n_prompt = std::ssize(running.tokens);
  running.tokens.reserve(static_cast<std::size_t>(running.capacity()));  // the decode loop does not allocate
  running.finish.usage.prompt_tokens = running.n_prompt;
  running.finish.usage.queue_seconds = seconds_between(running.submission.submitted, running.admitted);
  stats_.kv_reserved_bytes += running.submission.kv_bytes;
  active_.push_back(std::move(owned));
  if (auto started = start(running); !started) {
    finish(running, FinishReason::Error, std::move(started).error());
  } else if (running.position == running.n_prompt) {
    finish(running, FinishReason::Length);  // only the prompt was asked for, and the cache had all of it
  } else {
    running.submission.sink->on_prefill(running.position, running.n_prompt);
  }
  sweep();
  publish();
}

// A request that samples must run its last prompt token to have logits.
std::int64_t Scheduler::cacheable_length(const Running& running) const {
  return running.submission.limit == 0 ? running.n_prompt : running.n_prompt - 1;
}

Result<void> Scheduler::start(Running& running) {
  CacheHit hit;
  if (cache_ && running.caches()) {
    hit = cache_->find(running.tokens, cacheable_length(running));
    if (hit.diverged) running.finish.diverged_at = hit.shared;
    if (hit.snapshot && !restore(running, hit)) hit.length = 0;
    ++(running.position > 0 ? stats_.cache_hits : stats_.cache_misses);
  }
  if (!running.sequence) {
    auto created = with_memory([&] { return backend_.create(running.capacity()); });
    if (!created) return tl::unexpected<Error>(std::move(created).error());
    running.sequence = std::move(*created);
  }
  if (cache_ && running.caches()) plan_snapshots(running, hit);
  return {};
}

// Puts the request where the snapshot stands. False, and nothing changed, if the backend cannot.
bool Scheduler::restore(Running& running, const CacheHit& hit) {
  auto restored = with_memory([&] { return backend_.restore(*hit.snapshot, running.capacity()); });
  if (!restored) {
    log::warn("request {}: a cached prefix of {} tokens is not usable: {}", running.submission.id, hit.length,
              restored.error().message);
    if (restored.error().code != ErrorCode::OutOfMemory) cache_->forget(running.first_tokens(hit.length));
    return false;
  }
  LILY_CHECK((*restored)->length() == hit.length);
  running.sequence = std::move(*restored);
  running.finish.usage.cached_tokens += hit.length - running.position;  // what it ran itself does not count
  running.position = hit.length;
  running.last_saved = hit.length;
  return true;
}

void Scheduler::plan_snapshots(Running& running, const CacheHit& hit) {
  const SnapshotPlanInput input{.start = running.position,
                                .prompt = running.n_prompt,
                                .boundaries = running.submission.request.boundaries,
                                .branch = hit.diverged ? hit.shared : 0,
                                .interval = options_.snapshot_interval,
                                .most_boundaries = most_states(backend_, options_)};
  running.plan = options_.cache_states > 0 ? plan_state_snapshots(input) : plan_trie_snapshots(input);
  running.next_planned = 0;
}

// While this request waited for its turn, another may have cached more of the same prompt. Any gain is taken: it costs
// one copy of the recurrent state.
void Scheduler::catch_up(Running& running) {
  if (!cache_ || !running.caches()) return;
  const std::int64_t most = running.n_prompt - 1;
  if (cache_->longest(running.tokens, most) <= running.position) return;
  const CacheHit hit = cache_->find(running.tokens, most);
  if (!hit.snapshot || !restore(running, hit)) return;
  while (running.next_planned < running.plan.size() && running.plan[running.next_planned].length <= running.position) {
    ++running.next_planned;
  }
}

void Scheduler::refuse(const Submission& submission, FinishReason reason, std::optional<Error> error) {
  Finish finish{.reason = reason, .error = std::move(error)};
  finish.usage.prompt_tokens = std::ssize(submission.request.prompt);
  finish.usage.queue_seconds = seconds_between(submission.submitted, EngineClock::now());
  ++(reason == FinishReason::Cancelled ? stats_.cancelled : stats_.failed);
  publish();
  submission.sink->on_finish(finish);
}

Result<void> Scheduler::step() {
  end_cancelled();
  items_.clear();
  work_.clear();
  marks_.clear();
  mark_kinds_.clear();
  gather_decode();
  const bool streams = !items_.empty();
  const std::int64_t n_prompt_tokens = gather_prefill();
  sweep();
  if (items_.empty()) {
    publish();
    return {};
  }
  const auto before = EngineClock::now();
  LILY_TRY_VOID(run_items());
  const double seconds = seconds_between(before, EngineClock::now());
  if (streams && n_prompt_tokens > 0) pacer_.observe(n_prompt_tokens, seconds);
  ++stats_.steps;
  stats_.step_seconds += seconds;
  after_step();
  sweep();
  publish();
  return {};
}

void Scheduler::end_cancelled() {
  for (const auto& running : active_) {
    if (running->submission.cancelled->load(std::memory_order_relaxed)) finish(*running, FinishReason::Cancelled);
  }
  sweep();
}

void Scheduler::add_item(Running& running, std::int64_t n_tokens, Want want, std::span<SnapshotMark> marks) {
  const auto tokens = std::span<const TokenId>(running.tokens)
                          .subspan(static_cast<std::size_t>(running.position), static_cast<std::size_t>(n_tokens));
  items_.push_back({.sequence = running.sequence.get(), .tokens = tokens, .want = want, .marks = marks});
  work_.push_back({.running = &running});
}

void Scheduler::gather_decode() {
  for (const auto& running : active_) {
    if (running->phase == Phase::Decode) add_item(*running, 1, Want::Greedy);
  }
}

// Shares the step's room for prompt tokens out, beginning with the request whose turn it is. Returns the tokens taken.
std::int64_t Scheduler::gather_prefill() {
  const std::int64_t n_decode = std::ssize(items_);
  std::int64_t most = most_prompt_tokens(backend_, options_);
  if (n_decode > 0) most = std::min(most, pacer_.chunk());
  const std::int64_t room = std::min(most, backend_.max_batch_tokens() - n_decode);
  const auto first =
      std::ranges::find_if(active_, [&](const auto& running) { return running->submission.id > last_prefilled_; });
  const auto offset = static_cast<std::size_t>(first - active_.begin());
  std::int64_t taken = 0;
  for (std::size_t i = 0; i < active_.size() && taken < room; ++i) {
    Running& running = *active_[(offset + i) % active_.size()];
    if (running.phase != Phase::Prefill) continue;
    catch_up(running);
    const std::size_t first_mark = marks_.size();
    const std::int64_t n_tokens = place_marks(running, std::min(running.n_prompt - running.position, room - taken));
    const bool last = running.position + n_tokens == running.n_prompt && running.submission.limit > 0;
    add_item(running, n_tokens, last ? Want::Greedy : Want::Nothing, std::span(marks_).subspan(first_mark));
    taken += n_tokens;
    last_prefilled_ = running.submission.id;
  }
  return taken;
}

// Asks for the planned snapshots that lie inside the next n_tokens. Two requests with the same prompt in one step may
// both ask for a position; the cache then keeps the first. Returns how many tokens to run: as many, or up to where the
// step has no mark left. What is planned at the very end of the chunk is taken after the step, by reference.
std::int64_t Scheduler::place_marks(Running& running, std::int64_t n_tokens) {
  for (; running.next_planned < running.plan.size(); ++running.next_planned) {
    const PlannedSnapshot& planned = running.plan[running.next_planned];
    const std::int64_t at = planned.length - running.position;
    if (at >= n_tokens) break;
    if (marks_.size() == most_marks_) return at;
    marks_.push_back({.at = at});
    mark_kinds_.push_back(planned.kind);
  }
  return n_tokens;
}

// Runs the step. Out of memory, what is a convenience gives way: half of the cache, the marks, the rest of the cache.
// Then each request is tried alone, and those that do not fit end. Any other error is the backend's fault.
Result<void> Scheduler::run_items() {
  Result<void> ran = backend_.step(items_);
  if (lacks_memory(ran) && !marks_.empty()) {  // only what caches has marks
    if (cache_->shrink()) ran = backend_.step(items_);
    if (lacks_memory(ran)) {
      drop_marks();
      ran = backend_.step(items_);
    }
  }
  if (lacks_memory(ran)) ran = with_memory([&] { return backend_.step(items_); });
  if (lacks_memory(ran)) return run_one_by_one();
  if (!ran) return ran;
  for (Work& work : work_) work.ran = true;
  return {};
}

void Scheduler::drop_marks() {
  log::warn("no memory for {} snapshots inside a step, which runs without them", marks_.size());
  for (StepItem& item : items_) item.marks = {};
  marks_.clear();
  mark_kinds_.clear();
}

Result<void> Scheduler::run_one_by_one() {
  for (std::size_t i = 0; i < items_.size(); ++i) {
    Running& running = *work_[i].running;
    if (running.sequence->length() != running.position) {
      return fail(ErrorCode::Internal, "backend {} ran a part of a step for which it had no memory", backend_.name());
    }
    Result<void> ran = backend_.step(std::span(items_).subspan(i, 1));
    if (ran) {
      work_[i].ran = true;
    } else if (ran.error().code == ErrorCode::OutOfMemory) {
      finish(running, FinishReason::Error, std::move(ran).error());
    } else {
      return ran;
    }
  }
  return {};
}

void Scheduler::after_step() {
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (!work_[i].ran) continue;
    Running& running = *work_[i].running;
    const StepItem& item = items_[i];
    running.position += std::ssize(item.tokens);
    LILY_DCHECK(running.sequence->length() == running.position);
    save_marks(running, item);
    if (running.phase == Phase::Prefill) {
      after_prefill(running, item.greedy);
    } else {
      take_token(running, item.greedy);
    }
  }
}

void Scheduler::after_prefill(Running& running, TokenId sampled) {
  if (running.next_planned < running.plan.size() && running.plan[running.next_planned].length == running.position) {
    save_state(running, running.plan[running.next_planned].kind);
    ++running.next_planned;
  }
  running.submission.sink->on_prefill(running.position, running.n_prompt);
  if (running.position < running.n_prompt) return;
  running.first_token = EngineClock::now();
  if (running.submission.limit == 0) {
    finish(running, FinishReason::Length);
    return;
  }
  running.phase = Phase::Decode;
  take_token(running, sampled);
}

void Scheduler::take_token(Running& running, TokenId id) {
  if (id < 0) return fail_with_nan(running);
  const std::vector<TokenId>& stops = running.submission.request.stop_ids;
  if (std::ranges::find(stops, id) != stops.end()) return finish(running, FinishReason::Stop);
  running.tokens.push_back(id);
  running.submission.sink->on_token(id);
  if (running.n_completion() == running.submission.limit) finish(running, FinishReason::Length);
}

// The state that gave NaN may have been bad for long, so no snapshot on its path is trusted any more.
void Scheduler::fail_with_nan(Running& running) {
  ++stats_.nan_logits;
  log::error("request {}: the logits after {} tokens are not numbers", running.submission.id, running.position);
  if (cache_) cache_->forget(running.done_tokens());
  finish(running, FinishReason::Error,
         Error{ErrorCode::Internal,
               fmt::format("the model's output after {} tokens is not a number; the checkpoint may be damaged (run "
                           "`lily verify`)",
                           running.position)});
}

void Scheduler::save_marks(Running& running, const StepItem& item) {
  const std::int64_t start = running.position - std::ssize(item.tokens);
  for (SnapshotMark& mark : item.marks) {
    const std::int64_t length = start + mark.at;
    LILY_CHECK(mark.snapshot && mark.snapshot->length() == length);
    const SnapshotKind kind = mark_kinds_[static_cast<std::size_t>(&mark - marks_.data())];
    cache_->insert(running.first_tokens(length), std::move(mark.snapshot), kind, running.submission.request.cache_key);
    running.last_saved = length;
  }
  if (!item.marks.empty()) count_cache();
}

void Scheduler::save_state(Running& running, SnapshotKind kind) {
  if (!cache_ || !running.caches() || running.position == 0) return;
  running.last_saved = running.position;
  if (cache_->touch(running.done_tokens())) return;
  auto snapshot = backend_.snapshot(*running.sequence);
  if (!snapshot) {  // the cache is a convenience: the request goes on without
    log::warn("request {}: no snapshot at {} tokens: {}", running.submission.id, running.position,
              snapshot.error().message);
    if (snapshot.error().code == ErrorCode::OutOfMemory) cache_->shrink();
    return;
  }
  cache_->insert(running.done_tokens(), std::move(*snapshot), kind, running.submission.request.cache_key);
  count_cache();
}

// What was computed is kept: the end of an answer, and the part of a prompt that a cancelled request had run, if a
// repetition would miss it.
void Scheduler::save_last_state(Running& running, FinishReason reason) {
  if (reason == FinishReason::Error || !running.sequence) return;
  if (running.phase == Phase::Decode || running.position == running.n_prompt) {
    save_state(running, SnapshotKind::End);
  } else if (running.position - running.last_saved >= kLeastTokensToSnapshot && options_.cache_states == 0) {
    save_state(running, SnapshotKind::Interval);
  }
}

void Scheduler::finish(Running& running, FinishReason reason, std::optional<Error> error) {
  LILY_CHECK(running.phase != Phase::Done);
  save_last_state(running, reason);
  const auto now = EngineClock::now();
  const bool answered = running.phase == Phase::Decode;
  running.phase = Phase::Done;
  running.sequence.reset();
  Finish& finish = running.finish;
  finish.reason = reason;
  finish.error = std::move(error);
  finish.usage.completion_tokens = running.n_completion();
  finish.usage.prefill_seconds = seconds_between(running.admitted, answered ? running.first_token : now);
  if (answered) finish.usage.decode_seconds = seconds_between(running.first_token, now);

  stats_.kv_reserved_bytes -= running.submission.kv_bytes;
  stats_.prompt_tokens += static_cast<std::uint64_t>(finish.usage.prompt_tokens);
  stats_.cached_tokens += static_cast<std::uint64_t>(finish.usage.cached_tokens);
  stats_.completion_tokens += static_cast<std::uint64_t>(finish.usage.completion_tokens);
  switch (reason) {
    case FinishReason::Stop:
    case FinishReason::Length:
      ++stats_.finished;
      break;
    case FinishReason::Cancelled:
      ++stats_.cancelled;
      break;
    case FinishReason::Error:
      ++stats_.failed;
      break;
  }
  log::debug("request {}: {} after {} prompt tokens ({} cached, parts from the nearest cached path at {}), {} answered",
             running.submission.id, finish_name(reason), running.n_prompt, finish.usage.cached_tokens,
             finish.diverged_at, finish.usage.completion_tokens);
  count_cache();
  publish();
  running.submission.sink->on_finish(finish);
}

void Scheduler::sweep() {
  std::erase_if(active_, [](const auto& running) { return running->phase == Phase::Done; });
}

void Scheduler::fail_all(const Error& error) {
  stats_.healthy = false;
  for (const auto& running : active_) {
    if (running->phase != Phase::Done) finish(*running, FinishReason::Error, error);
  }
  sweep();
  publish();
}

void Scheduler::save_cache() {
  if (!cache_ || !stats_.healthy) return;
  cache_->save();
  count_cache();
  publish();
}

void Scheduler::publish() {
  stats_.active = static_cast<int>(
      std::ranges::count_if(active_, [](const auto& running) { return running->phase != Phase::Done; }));
  board_.publish(stats_);
}

void Scheduler::count_cache() {
  if (!cache_) return;
  const CacheCounters counters = cache_->counters();
  stats_.cache_entries = counters.entries;
  stats_.cache_used_bytes = counters.used_bytes;
  stats_.cache_evictions = counters.evictions;
  stats_.cache_disk_entries = counters.disk_entries;
  stats_.cache_disk_bytes = counters.disk_bytes;
}

}  // namespace lily
