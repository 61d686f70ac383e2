#include "main/demo/demo_screen.h"

#include <sys/ioctl.h>

#include <algorithm>

namespace gpusched {
namespace {

constexpr int kWideColumns = 200;
constexpr int kColumnsDefault = 80;
constexpr int kColumnsBeforeNote = 41;
constexpr int kNoteColumnsMin = 10;
constexpr std::size_t kBarColumnsPerJob = 4;

int columns_of(std::FILE* out) {
  winsize size{};
  return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kColumnsDefault;
}

const char* colour_of(const std::string& state) {
  if (state == "running") return "36";
  if (state == "completed") return "32";
  if (state == "failed") return "31";
  if (state == "cancelled") return "33";
  return "35";
}

char marker_of(DemoVerdict verdict) {
  switch (verdict) {
    case DemoVerdict::kOpen:
      return ' ';
    case DemoVerdict::kRight:
      return '+';
    case DemoVerdict::kWrong:
      return '!';
  }
  return ' ';
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

}  // namespace

DemoScreen::DemoScreen(std::FILE* out, bool live)
    : out_(out), live_(live), started_(std::chrono::steady_clock::now()) {}

double DemoScreen::seconds_since_start() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
}

std::string DemoScreen::row(const DemoJob& job, int width) const {
  const int note_columns = std::max(kNoteColumnsMin, width - kColumnsBeforeNote);
  const std::string note = (job.note.empty() ? job.what : job.note).substr(0, std::size_t(note_columns));
  std::string state = padded(job.state, 10);
  if (live_) state = std::string("\x1b[") + colour_of(job.state) + "m" + state + "\x1b[0m";
  return std::string(" ") + marker_of(job.verdict) + " " + padded(job.id, 8) + " " + padded(job.name, 8) +
         "  " + padded(std::to_string(job.gpus), 4) + "  " + state + "  " + note;
}

void DemoScreen::draw(const std::vector<DemoJob>& jobs) {
  if (live_) return draw_table(jobs);
  for (const DemoJob& job : jobs) {
    if (job.id.empty()) continue;
    const std::string news = job.state + (job.state == "pending" ? job.note : "");
    std::string& shown = shown_[job.name];
    if (news == shown) continue;
    shown = news;
    std::fprintf(out_, "%5.1f s %s\n", seconds_since_start(), row(job, kWideColumns).c_str());
  }
  std::fflush(out_);
}

void DemoScreen::draw_table(const std::vector<DemoJob>& jobs) {
  const int width = columns_of(out_);
  std::string text;
  if (lines_drawn_ > 0) text += "\x1b[" + std::to_string(lines_drawn_) + "A";
  const auto add = [&text](const std::string& line) { text += "\x1b[2K" + line + "\n"; };
  add("   JOB      NAME      GPUS  STATE       WHAT IT SAYS");
  for (const DemoJob& job : jobs) add(row(job, width));
  const auto done =
      std::size_t(std::count_if(jobs.begin(), jobs.end(), [](const DemoJob& job) { return job.ended(); }));
  add(" [" + std::string(done * kBarColumnsPerJob, '#') +
      std::string((jobs.size() - done) * kBarColumnsPerJob, '.') + "] " + std::to_string(done) + " of " +
      std::to_string(jobs.size()) + " ended, " + std::to_string(int(seconds_since_start())) + " s");
  std::fputs(text.c_str(), out_);
  std::fflush(out_);
  lines_drawn_ = jobs.size() + 2;
}

}  // namespace gpusched
