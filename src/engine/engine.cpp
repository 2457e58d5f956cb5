// The engine's thread and its queue. Callers put submissions into a bounded FIFO under a mutex; the thread moves them
// into the scheduler (scheduler.h) as slots and memory allow, head first, so that nothing overtakes and nothing
// starves, and steps the scheduler while anything runs. All sinks are called from here.
#include "engine/engine.h"

#include <xxhash.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/version.h"
#include "engine/cache_states.h"
#include "engine/cache_trie.h"
#include "engine/scheduler.h"

namespace lily {
namespace {

class EngineImpl : public Engine {
 public:
  EngineImpl(std::unique_ptr<Backend> backend, EngineOptions options, std::unique_ptr<PrefixCache> cache)
      : backend_(std::move(backend)), options_(std::move(options)), cache_(std::move(cache)) {
    thread_ = std::thread([this] { run(); });
    thread_id_ = thread_.get_id();
  }
  ~EngineImpl() override { shutdown(0); }

  Result<RequestId> submit(Request request, std::shared_ptr<EventSink> sink) override;
  void cancel(RequestId id) override;
  void shutdown(double drain_seconds) override;
  EngineStats stats() const override;
  const EngineOptions& options() const override { return options_; }
  const Backend& backend() const override { return *backend_; }

 private:
  Result<Submission> check(Request request, std::shared_ptr<EventSink> sink) const;

  void run();
  void serve(Scheduler& scheduler);
  bool wait_for_work(const Scheduler& scheduler);
  void move_queue(Scheduler& scheduler);
  void fault(Scheduler& scheduler, const Error& error);
  void forget_finished();

  const std::unique_ptr<Backend> backend_;
  const EngineOptions options_;
  std::unique_ptr<PrefixCache> cache_;  // handed to the scheduler when the thread starts
  StatsBoard board_;

  mutable std::mutex mutex_;
  std::condition_variable work_;  // to the thread: something in the queue, a cancel, the end
  std::condition_variable idle_;  // to shutdown(): nothing runs or waits, or an earlier deadline
  std::deque<Submission> queue_;
  std::unordered_map<RequestId, std::weak_ptr<std::atomic<bool>>> cancels_;  // of accepted requests
  RequestId next_id_ = 1;
  std::uint64_t accepted_ = 0, refused_ = 0;
  bool busy_ = false;      // the thread holds requests
  bool cancel_ = false;    // some flag in cancels_ was set
  bool stopping_ = false;  // no admission
  bool quit_ = false;
  std::optional<Error> fault_;
  EngineClock::time_point deadline_ = EngineClock::time_point::max();
  std::mutex join_mutex_;
  std::thread thread_;
  std::thread::id thread_id_;
};

Result<Submission> EngineImpl::check(Request request, std::shared_ptr<EventSink> sink) const {
  const std::int64_t n_prompt = std::ssize(request.prompt);
  if (n_prompt == 0) return fail(ErrorCode::InvalidArgument, "the prompt has no tokens");
  if (n_prompt + 1 > options_.max_seq) {
    return fail(ErrorCode::InvalidArgument,
                "the prompt has {} tokens, but a sequence has room for {} with at least one for the answer; shorten "
                "it or raise --max-seq",
                n_prompt, options_.max_seq);
  }
  if (request.max_tokens < -1) {
    return fail(ErrorCode::InvalidArgument, "max_tokens is {}; it must be -1 (no limit), 0 or more",
                request.max_tokens);
  }
  const auto impossible =
      std::ranges::find_if(request.prompt, [&](TokenId id) { return id < 0 || id >= backend_->shape().vocab; });
  if (impossible != request.prompt.end()) {
    return fail(ErrorCode::InvalidArgument, "the prompt contains token id {}; ids are 0 to {}", *impossible,
                backend_->shape().vocab - 1);
  }
  const std::int64_t room = options_.max_seq - n_prompt;
  const std::int64_t limit = request.max_tokens < 0 ? room : std::min(request.max_tokens, room);
  const std::size_t kv_bytes = backend_->sequence_bytes(n_prompt + limit);
  if (options_.kv_bytes > 0 && kv_bytes > options_.kv_bytes) {
    return fail(ErrorCode::OutOfMemory,
                "{} prompt tokens and up to {} answer tokens need {} MiB, the budget for running sequences is {} MiB; "
                "ask for fewer tokens",
                n_prompt, limit, kv_bytes >> 20, options_.kv_bytes >> 20);
  }
  return Submission{.request = std::move(request),
                    .sink = std::move(sink),
                    .limit = limit,
                    .kv_bytes = kv_bytes,
                    .submitted = EngineClock::now(),
                    .cancelled = std::make_shared<std::atomic<bool>>(false)};
}

Result<RequestId> EngineImpl::submit(Request request, std::shared_ptr<EventSink> sink) {
  LILY_CHECK(sink != nullptr);
  Result<Submission> submission = check(std::move(request), std::move(sink));
  const std::lock_guard lock(mutex_);
  const auto refuse = [&](Error error) {
    ++refused_;
    return tl::unexpected<Error>(std::move(error));
  };
  if (!submission) return refuse(std::move(submission).error());
  if (fault_) return refuse({ErrorCode::Unavailable, "the backend has failed (" + fault_->message + "); restart"});
  if (stopping_) return refuse({ErrorCode::Unavailable, "the engine is shutting down"});
  if (std::ssize(queue_) >= options_.max_queued) {
    return refuse(
        {ErrorCode::Unavailable, fmt::format("{} requests are waiting already; try again later", options_.max_queued)});
  }
  const RequestId id = next_id_++;
  submission->id = id;
  cancels_.emplace(id, submission->cancelled);
  queue_.push_back(std::move(*submission));
  ++accepted_;
  work_.notify_one();
  return id;
}

void EngineImpl::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  const auto it = cancels_.find(id);
  if (it == cancels_.end()) return;
  if (const auto flag = it->second.lock()) {
    flag->store(true, std::memory_order_relaxed);
    cancel_ = true;
    work_.notify_one();
  }
}

void EngineImpl::shutdown(double drain_seconds) {
  LILY_CHECK(std::this_thread::get_id() != thread_id_);
  using Seconds = std::chrono::duration<double>;
  const auto drain = std::chrono::duration_cast<EngineClock::duration>(Seconds(std::clamp(drain_seconds, 0.0, 1e6)));
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    deadline_ = std::min(deadline_, EngineClock::now() + drain);
    idle_.notify_all();  // a second call may shorten the first one's wait
    const auto is_idle = [&] { return queue_.empty() && !busy_; };
    while (!is_idle() && EngineClock::now() < deadline_) idle_.wait_until(lock, deadline_);
    for (const auto& [id, weak] : cancels_) {
      if (const auto flag = weak.lock()) flag->store(true, std::memory_order_relaxed);
    }
    cancel_ = true;
    quit_ = true;
    work_.notify_one();
  }
  const std::lock_guard join(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

EngineStats EngineImpl::stats() const {
  EngineStats stats = board_.read();
  const std::lock_guard lock(mutex_);
  stats.queued = static_cast<int>(queue_.size());
  stats.requests = accepted_;
  stats.refused = refused_;
  return stats;
}

void EngineImpl::run() {
  Scheduler scheduler(*backend_, options_, std::move(cache_), board_);
  while (wait_for_work(scheduler)) {
    try {
      serve(scheduler);
    } catch (const std::exception& exception) {
      fault(scheduler, {ErrorCode::Internal, exception.what()});
    }
  }
  scheduler.save_cache();
}

// Queue into scheduler, then one step.
void EngineImpl::serve(Scheduler& scheduler) {
  move_queue(scheduler);
  if (scheduler.idle()) return;
  if (const Result<void> stepped = scheduler.step(); !stepped) fault(scheduler, stepped.error());
}

// False when the thread is to end: asked to, and nothing left.
bool EngineImpl::wait_for_work(const Scheduler& scheduler) {
  std::unique_lock lock(mutex_);
  forget_finished();
  busy_ = !scheduler.idle();
  if (!busy_ && queue_.empty()) idle_.notify_all();
  work_.wait(lock, [&] { return busy_ || !queue_.empty() || cancel_ || quit_; });
  const bool goes_on = busy_ || !queue_.empty() || !quit_;
  busy_ = goes_on;  // until the next call, so that shutdown() cannot miss a request between queue and scheduler
  cancel_ = false;
  return goes_on;
}

void EngineImpl::forget_finished() {
  std::erase_if(cancels_, [](const auto& entry) { return entry.second.expired(); });
}

void EngineImpl::move_queue(Scheduler& scheduler) {
  std::vector<Submission> cancelled;
  std::vector<Submission> failed;
  std::optional<Error> error;
  {
    const std::lock_guard lock(mutex_);
    const auto first = std::stable_partition(queue_.begin(), queue_.end(), [](const Submission& submission) {
      return !submission.cancelled->load(std::memory_order_relaxed);
    });
    std::move(first, queue_.end(), std::back_inserter(cancelled));
    queue_.erase(first, queue_.end());
    if (fault_) {
      error = fault_;
      std::ranges::move(queue_, std::back_inserter(failed));
      queue_.clear();
    }
  }
  for (const Submission& submission : cancelled) scheduler.refuse(submission, FinishReason::Cancelled, std::nullopt);
  for (const Submission& submission : failed) scheduler.refuse(submission, FinishReason::Error, error);
  for (;;) {
    std::unique_lock lock(mutex_);
    if (queue_.empty() || !scheduler.has_room_for(queue_.front())) return;
    Submission next = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    scheduler.admit(std::move(next));
  }
}

void EngineImpl::fault(Scheduler& scheduler, const Error& error) {
  log::error("backend {} failed: {}", backend_->name(), error.message);
  {
    const std::lock_guard lock(mutex_);
    if (!fault_) fault_ = error;
  }
  scheduler.fail_all({ErrorCode::Internal, "the backend failed: " + error.message});
  move_queue(scheduler);
}

Result<void> check_options(const Backend& backend, const EngineOptions& options) {
  if (options.max_seq < 2 || options.max_seq > backend.shape().max_positions) {
    return fail(ErrorCode::InvalidArgument, "max-seq is {}; {} has positions for 2 to {} tokens", options.max_seq,
                backend.shape().name, backend.shape().max_positions);
  }
  if (options.max_active < 1 || options.max_queued < 1) {
    return fail(ErrorCode::InvalidArgument, "max-active ({}) and max-queued ({}) must be at least 1",
                options.max_active, options.max_queued);
  }
  if (options.cache_states < 0) {
    return fail(ErrorCode::InvalidArgument, "cache-states is {}; it must be 0 or more", options.cache_states);
  }
  if (!options.cache_directory.empty() && (options.cache_states > 0 || options.cache_bytes == 0)) {
    return fail(ErrorCode::InvalidArgument,
                "a cache directory needs the trie: --cache-dir goes with neither --cache-states nor --cache-size 0");
  }
  return {};
}

// Stands for everything that must be the same for a state on disk to continue as if it had been computed here.
std::uint64_t persistence_key(const Backend& backend, const EngineOptions& options) {
  const std::string identity = fmt::format("{}\n{}\n{}\n{}\n{}", options.fingerprint, backend.shape().name,
                                           backend.name(), backend.description(), commit());
  return XXH3_64bits(identity.data(), identity.size());
}

Result<std::unique_ptr<PrefixCache>> make_cache(Backend& backend, const EngineOptions& options) {
  if (options.cache_states > 0) return std::make_unique<StatesCache>(options.cache_states);
  if (options.cache_bytes == 0) return std::unique_ptr<PrefixCache>();
  if (options.cache_directory.empty()) return std::make_unique<TrieCache>(options.cache_bytes);
  LILY_TRY(auto store, SnapshotStore::open(options.cache_directory, persistence_key(backend, options),
                                           options.cache_directory_bytes));
  log::info("prefix cache: {} snapshots found in {}", store->entries(), options.cache_directory);
  return std::make_unique<TrieCache>(options.cache_bytes, backend, std::move(store));
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(std::unique_ptr<Backend> backend, EngineOptions options) {
  LILY_CHECK(backend != nullptr);
  LILY_TRY_VOID(check_options(*backend, options));
  // A step must hold one token of every stream and still leave room for a prompt.
  const std::int64_t most_active = std::max<std::int64_t>(1, backend->max_batch_tokens() - 1);
  options.max_active = static_cast<int>(std::min<std::int64_t>(options.max_active, most_active));
  LILY_TRY(auto cache, make_cache(*backend, options));
  return std::make_unique<EngineImpl>(std::move(backend), std::move(options), std::move(cache));
}

std::string_view finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::Stop:
      return "stop";
    case FinishReason::Length:
      return "length";
    case FinishReason::Cancelled:
      return "cancelled";
    case FinishReason::Error:
      break;
  }
  return "error";
}

}  // namespace lily
