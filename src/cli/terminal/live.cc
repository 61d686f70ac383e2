#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "cli/commands.h"
#include "cli/terminal/screen.h"
#include "cli/terminal/style.h"
#include "cli/terminal/text.h"

namespace gpusched::cli {
namespace {

constexpr Duration kCallMax = seconds(3);  // A hanging call delays the end of the command by no more.
constexpr Duration kLook = milliseconds(100);

/// Fetches on a thread of its own, every interval and when asked to.
class Fetcher {
 public:
  Fetcher(Session session, const LiveView& view) : session_(std::move(session)), view_(view) {
    thread_ = std::thread([this] { run(); });
  }
  Fetcher(const Fetcher&) = delete;
  Fetcher& operator=(const Fetcher&) = delete;
  ~Fetcher() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  /// How often there was an answer, good or bad.
  uint64_t count() const { return count_.load(); }
  std::optional<Trouble> trouble() const {
    const std::lock_guard lock(mutex_);
    return trouble_;
  }
  void now() {
    {
      const std::lock_guard lock(mutex_);
      asked_ = true;
    }
    wake_.notify_one();
  }

 private:
  void run() {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait_for(lock, std::chrono::nanoseconds(view_.interval.ns), [this] { return ends_ || asked_; });
        if (ends_) return;
        asked_ = false;
      }
      const Reply reply = view_.fetch(session_);
      const std::lock_guard lock(mutex_);
      trouble_ = reply.trouble;
      ++count_;
    }
  }

  Session session_;
  const LiveView& view_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  bool asked_ = false;
  std::optional<Trouble> trouble_;
  std::atomic<uint64_t> count_ = 0;
  std::thread thread_;  // The last, so that it starts when all else is there.
};

/// The text that watch_screen shows, and its width.
struct Watched {
  std::mutex mutex;
  std::string text;
  std::atomic<int> width = 80;
};

}  // namespace

int run_live(Session& session, const LiveView& view) {
  const Reply first = view.fetch(session);
  if (!first) return session.fail(*first.trouble);
  Result<std::unique_ptr<Screen>> screen = Screen::open();
  if (!screen) return session.fail(kExitUsage, screen.error().message, "usage");
  Session own = session.fork();
  own.limit_calls(kCallMax);
  Fetcher fetcher(std::move(own), view);
  uint64_t drawn_count = UINT64_MAX;
  ScreenSize drawn_size{0, 0};
  for (;;) {
    const ScreenSize size = (*screen)->size();
    const bool resized = size.columns != drawn_size.columns || size.rows != drawn_size.rows;
    if (resized || fetcher.count() != drawn_count) {
      drawn_count = fetcher.count();
      (*screen)->draw(view.render(size, fetcher.trouble()));
      if (resized && drawn_size.rows != 0) fetcher.now();
      drawn_size = size;
    }
    const std::optional<int> key = (*screen)->wait_key(kLook);
    if (!key) continue;
    if (!view.on_key(*key)) return kExitOk;
    (*screen)->draw(view.render((*screen)->size(), fetcher.trouble()));
  }
}

int watch_screen(Session& session, const std::string& title, Duration interval,
                 const std::function<Reply(Session&, int width, std::string& text)>& look) {
  const CliIo& io = session.io();
  if (!io.out_is_terminal) {
    for (bool first = true;; first = false) {
      std::string text;
      const Reply reply = look(session, io.width, text);
      if (!reply && (first || !reply.trouble->passing)) return session.fail(*reply.trouble);
      if (reply) io.out((first ? "" : "\n") + text);
      io.pause(interval);
    }
  }
  Watched watched;
  watched.width = io.width;
  LiveView view;
  view.interval = interval;
  view.fetch = [&](Session& own) {
    std::string text;
    Reply reply = look(own, watched.width, text);
    const std::lock_guard lock(watched.mutex);
    if (reply) watched.text = std::move(text);
    return reply;
  };
  view.render = [&](ScreenSize size, const std::optional<Trouble>& trouble) {
    watched.width = size.columns;
    const std::lock_guard lock(watched.mutex);
    const std::string note = trouble ? printable(trouble->sentence) : title + ", q quits";
    const Style style = trouble ? Style::kBad : Style::kDim;
    return styled(fitted(note, size.columns), style, colored(session.options(), io)) + "\n" + watched.text;
  };
  view.on_key = [](int key) { return key != 'q' && key != kKeyEscape; };
  return run_live(session, view);
}

}  // namespace gpusched::cli
