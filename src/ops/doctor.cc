#include "ops/doctor.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "log/line.h"

namespace gpusched {
namespace {

std::string padded(std::string_view text, std::size_t width) {
  std::string out(text);
  out.resize(std::max(width, out.size()), ' ');
  return out;
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarn:
      return "warn";
    case Verdict::kFail:
      return "fail";
  }
  UNREACHABLE();
}

void Diagnosis::add_all(std::vector<Finding> findings) {
  std::ranges::move(findings, std::back_inserter(findings_));
}

Verdict Diagnosis::verdict() const {
  Verdict worst = Verdict::kOk;
  for (const Finding& finding : findings_) worst = std::max(worst, finding.verdict);
  return worst;
}

int Diagnosis::exit_code() const { return static_cast<int>(verdict()); }

std::string Diagnosis::text() const {
  std::size_t width = 0;
  for (const Finding& finding : findings_) width = std::max(width, finding.check.size());
  std::string out;
  int counts[3] = {};
  for (const Finding& finding : findings_) {
    counts[static_cast<int>(finding.verdict)] += 1;
    out += padded(to_string(finding.verdict), 6) + padded(finding.check, width + 2) + finding.detail + "\n";
    if (!finding.fix.empty()) out += std::string(width + 8, ' ') + "fix: " + finding.fix + "\n";
  }
  return out + std::to_string(counts[0]) + " ok, " + std::to_string(counts[1]) + " warn, " +
         std::to_string(counts[2]) + " fail\n";
}

std::string Diagnosis::json(std::string_view program, std::string_view host) const {
  std::string out = "{\"program\":";
  append_json_string(out, program);
  out += ",\"host\":";
  append_json_string(out, host);
  out += ",\"verdict\":";
  append_json_string(out, to_string(verdict()));
  out += ",\"checks\":[";
  for (std::size_t i = 0; i < findings_.size(); ++i) {
    const Finding& finding = findings_[i];
    out += i == 0 ? "{\"check\":" : ",{\"check\":";
    append_json_string(out, finding.check);
    out += ",\"verdict\":";
    append_json_string(out, to_string(finding.verdict));
    out += ",\"detail\":";
    append_json_string(out, finding.detail);
    out += ",\"fix\":";
    append_json_string(out, finding.fix);
    out += "}";
  }
  return out + "]}\n";
}

}  // namespace gpusched
