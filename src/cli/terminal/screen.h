#pragma once

#include <termios.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "cli/framework/session.h"

namespace gpusched::cli {

/// A key: its character, or one of these.
enum Key : int {
  kKeyUp = 256,
  kKeyDown,
  kKeyLeft,
  kKeyRight,
  kKeyPageUp,
  kKeyPageDown,
  kKeyHome,
  kKeyEnd,
  kKeyEscape,
};

struct ScreenSize {
  int columns = 80;
  int rows = 24;
};

/// The whole terminal, on its alternate screen, keys unbuffered and not shown. It is given back as it was by
/// the destructor, by every signal that ends the process, by a failed CHECK, and while the process is stopped
/// by Ctrl-Z. At most one at a time. Not thread-safe.
class Screen {
 public:
  /// kUnavailable when standard output is no terminal.
  static Result<std::unique_ptr<Screen>> open();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen();

  /// Returns the current size.
  ScreenSize size() const;
  /// Shows `text`, line by line from the top; lines beyond the last row are left out. In one write: it does
  /// not flicker.
  void draw(const std::string& text);
  /// The next key, or nothing after `patience`, or when the terminal's size changed or we were stopped and go
  /// on.
  std::optional<int> wait_key(Duration patience);

 private:
  Screen() = default;
  int next_key();

  std::string pending_;  // Typed, and not given out yet.
  int keys_fd_ = -1;     // -1: there is no keyboard.
};

/// Something that is shown again and again. The functions are called from two threads, never at once for one
/// of them.
struct LiveView {
  /// Asks for what `render` will show. On a thread of its own, with its own session.
  std::function<Reply(Session&)> fetch;
  /// The screen's lines. `trouble` is why the last fetch gave nothing; what was fetched before is still
  /// there.
  std::function<std::string(ScreenSize, const std::optional<Trouble>& trouble)> render;
  /// Whether to go on after this key.
  std::function<bool(int key)> on_key;
  Duration interval = seconds(2);
};

/// Shows it until `on_key` says no. The first fetch is made before the screen is taken: when it fails, that
/// is all.
int run_live(Session& session, const LiveView& view);

/// Shows what `look` puts into a text for so many columns, until q; without a terminal it prints one text
/// behind the other.
int watch_screen(Session& session, const std::string& title, Duration interval,
                 const std::function<Reply(Session&, int width, std::string& text)>& look);

}  // namespace gpusched::cli
