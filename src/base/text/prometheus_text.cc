#include "base/text/prometheus_text.h"

namespace gpusched {

void PrometheusText::family(std::string_view name, std::string_view type, std::string_view help,
                            bool is_bare) {
  out_ += "# HELP ";
  append_name(name, is_bare).append(" ").append(help).append("\n# TYPE ");
  append_name(name, is_bare).append(" ").append(type).append("\n");
}

PrometheusText& PrometheusText::sample(std::string_view name, bool is_bare) {
  append_name(name, is_bare);
  has_labels_ = false;
  return *this;
}

PrometheusText& PrometheusText::label(std::string_view name, std::string_view value) {
  out_.append(std::exchange(has_labels_, true) ? "," : "{").append(name).append("=\"");
  for (const char c : value) {
    if (c == '\n') {
      out_ += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out_ += '\\';
    out_ += c;
  }
  out_ += '"';
  return *this;
}

void PrometheusText::number(std::string_view digits) {
  if (has_labels_) out_ += '}';
  out_.append(" ").append(digits).append("\n");
}

std::string& PrometheusText::append_name(std::string_view name, bool is_bare) {
  if (!is_bare && !name_space_.empty()) out_.append(name_space_).append("_");
  return out_.append(name);
}

}  // namespace gpusched
