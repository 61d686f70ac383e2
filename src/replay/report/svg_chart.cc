#include "replay/report/svg_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "base/check.h"

namespace gpusched::replay {
namespace {

constexpr double kWidth = 720;
constexpr double kHeight = 420;
constexpr double kLeft = 64;
constexpr double kRight = 20;
constexpr double kTop = 44;
constexpr double kBottom = 56;

struct Look {
  std::string_view colour;
  std::string_view dash;
};
/// Told apart without colours too.
constexpr std::array<Look, 8> kLooks = {{{"#0b62a4", ""},
                                         {"#c4461c", "7 3"},
                                         {"#2b7a3d", "2 3"},
                                         {"#7a3f98", "10 3 2 3"},
                                         {"#8a6d00", "5 2"},
                                         {"#444444", "1 2"},
                                         {"#008b8b", "12 4"},
                                         {"#b0306a", "4 4"}}};

struct Tick {
  double at = 0;
  std::string_view label;
};
constexpr std::array<Tick, 11> kTimes = {{{1, "1 s"},
                                          {10, "10 s"},
                                          {60, "1 min"},
                                          {600, "10 min"},
                                          {3600, "1 h"},
                                          {6.0 * 3600, "6 h"},
                                          {86400, "1 d"},
                                          {3.0 * 86400, "3 d"},
                                          {10.0 * 86400, "10 d"},
                                          {30.0 * 86400, "30 d"},
                                          {100.0 * 86400, "100 d"}}};

template <typename... Arguments>
void print(std::string& out, const char* format, Arguments... arguments) {
  char text[512];
  const int size = std::snprintf(text, sizeof text, format, arguments...);
  CHECK(size >= 0);
  out.append(text, std::min(static_cast<std::size_t>(size), sizeof text - 1));
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (static_cast<unsigned char>(c) >= ' ') {
      out += c;
    }
  }
  return out;
}

/// From the chart's numbers to places on the page.
class Scale {
 public:
  explicit Scale(const LineChart& chart) : log_(chart.x_is_time), y_max_(chart.y_max) {
    CHECK(chart.y_max > 0);
    bool any = false;
    for (const LineChart::Line& line : chart.lines) {
      for (const auto& [x, y] : line.points) {
        low_ = any ? std::min(low_, x) : x;
        high_ = any ? std::max(high_, x) : x;
        any = true;
      }
    }
    if (log_) low_ = std::max(low_, 1.0);
    if (high_ <= low_) high_ = log_ ? low_ * 10 : low_ + 1;
  }
  double low() const { return low_; }
  double high() const { return high_; }
  double x(double value) const {
    double share = (value - low_) / (high_ - low_);
    if (log_) share = std::log(std::max(value, low_) / low_) / std::log(high_ / low_);
    return kLeft + std::clamp(share, 0.0, 1.0) * (kWidth - kLeft - kRight);
  }
  double y(double value) const {
    return kHeight - kBottom - std::clamp(value / y_max_, 0.0, 1.0) * (kHeight - kTop - kBottom);
  }

 private:
  bool log_;
  double y_max_;
  double low_ = 0;
  double high_ = 0;
};

void draw_axes(std::string& out, const LineChart& chart, const Scale& scale) {
  constexpr int kSteps = 5;
  const double bottom = kHeight - kBottom;
  for (int i = 0; i <= kSteps; ++i) {
    const double value = chart.y_max * i / kSteps;
    const double y = scale.y(value);
    print(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", kLeft, y,
          kWidth - kRight, y);
    print(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.*f%s</text>\n", kLeft - 8, y + 4,
          chart.y_is_share || chart.y_max >= 10 ? 0 : 1, chart.y_is_share ? value * 100 : value,
          chart.y_is_share ? " %" : "");
  }
  const auto tick = [&](double at, const char* label) {
    const double x = scale.x(at);
    print(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", x, kTop, x,
          bottom);
    print(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", x, bottom + 18, label);
  };
  if (chart.x_is_time) {
    for (const Tick& each : kTimes) {
      if (each.at >= scale.low() && each.at <= scale.high()) tick(each.at, each.label.data());
    }
  } else {
    for (int i = 0; i <= kSteps; ++i) {
      const double value = scale.low() + (scale.high() - scale.low()) * i / kSteps;
      char label[32];
      std::snprintf(label, sizeof label, "%.4g", value);
      tick(value, label);
    }
  }
  print(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#333\"/>\n", kLeft, bottom,
        kWidth - kRight, bottom);
  print(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#333\"/>\n", kLeft, kTop, kLeft,
        bottom);
}

void draw_line(std::string& out, const LineChart::Line& line, const Look& look, const Scale& scale) {
  if (line.points.empty()) return;
  print(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\"", look.colour.data());
  if (!look.dash.empty()) print(out, " stroke-dasharray=\"%s\"", look.dash.data());
  out += " points=\"";
  for (const auto& [x, y] : line.points) print(out, "%.1f,%.1f ", scale.x(x), scale.y(y));
  out.back() = '"';
  out += "/>\n";
}

void draw_legend(std::string& out, const LineChart& chart) {
  std::size_t longest = 0;
  for (const LineChart::Line& line : chart.lines) longest = std::max(longest, line.name.size());
  // As wide as the names, of which a letter has 7 of the chart's units at most on average.
  const double x = kWidth - kRight - std::max(230.0, 40 + 7 * static_cast<double>(longest));
  double y = kHeight - kBottom - 14 - 18 * static_cast<double>(chart.lines.size() - 1);
  for (std::size_t i = 0; i < chart.lines.size(); ++i, y += 18) {
    const Look& look = kLooks[i];
    print(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"2\"", x,
          y - 4, x + 28, y - 4, look.colour.data());
    if (!look.dash.empty()) print(out, " stroke-dasharray=\"%s\"", look.dash.data());
    print(out, "/>\n<text x=\"%.1f\" y=\"%.1f\">", x + 36, y);
    out += escaped(chart.lines[i].name) + "</text>\n";
  }
}

}  // namespace

std::string draw_svg(const LineChart& chart) {
  CHECK(chart.lines.size() <= kLooks.size());
  const Scale scale(chart);
  std::string out;
  print(out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" "
        "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
        kWidth, kHeight, kWidth, kHeight);
  print(out, "<text x=\"%.1f\" y=\"24\" font-size=\"15\" font-weight=\"bold\">", kLeft);
  out += escaped(chart.title) + "</text>\n";
  draw_axes(out, chart, scale);
  for (std::size_t i = 0; i < chart.lines.size(); ++i) draw_line(out, chart.lines[i], kLooks[i], scale);
  if (!chart.lines.empty()) draw_legend(out, chart);
  print(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", (kLeft + kWidth - kRight) / 2,
        kHeight - 14);
  out += escaped(chart.x_label) + "</text>\n";
  print(out, "<text transform=\"translate(16 %.1f) rotate(-90)\" text-anchor=\"middle\">",
        (kTop + kHeight - kBottom) / 2);
  out += escaped(chart.y_label) + "</text>\n</svg>\n";
  return out;
}

LineChart::Line cumulative(std::string name, std::vector<double> values, double least,
                           std::size_t points_max) {
  CHECK(points_max >= 2);
  LineChart::Line line{.name = std::move(name), .points = {}};
  if (values.empty()) return line;
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  const auto within = std::upper_bound(values.begin(), values.end(), least) - values.begin();
  line.points.push_back({least, static_cast<double>(within) / count});
  const std::size_t rest = values.size() - static_cast<std::size_t>(within);
  const std::size_t step = std::max<std::size_t>(1, (rest + points_max - 1) / points_max);
  for (std::size_t i = static_cast<std::size_t>(within); i < values.size(); i += step)
    line.points.push_back({values[i], static_cast<double>(i + 1) / count});
  line.points.push_back({values.back(), 1.0});
  return line;
}

}  // namespace gpusched::replay
