#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gpusched::replay {

/// A chart of lines, drawn as SVG text: what replays draw. Its look is fixed.
struct LineChart {
  struct Line {
    std::string name;
    std::vector<std::pair<double, double>> points;  ///< x and y, ascending in x.
  };
  std::string title;
  std::string x_label;
  std::string y_label;
  bool x_is_time = false;   ///< x is in seconds, on a logarithmic axis with ticks such as 1 min, 1 h, 1 d.
  double y_max = 1;         ///< y runs from 0 to this.
  bool y_is_share = false;  ///< y is shown in per cent.
  std::vector<Line> lines;  ///< At most 8: as many colours and dashes there are.
};

/// The chart as an SVG document of 720 x 420.
std::string draw_svg(const LineChart& chart);

/// The share of the values that is at most x, as a line of at most `points_max` points, each at its value:
/// for drawing cumulative distributions. `values` need not be sorted; `least` is the smallest x shown.
LineChart::Line cumulative(std::string name, std::vector<double> values, double least,
                           std::size_t points_max);

}  // namespace gpusched::replay
