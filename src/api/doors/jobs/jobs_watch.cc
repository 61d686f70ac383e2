#include "api/doors/jobs/jobs_watch.h"

#include <string>

#include "api/contract/json_writer.h"
#include "api/contract/names.h"
#include "api/doors/jobs/views_json.h"

namespace gpusched::api {
namespace {

/// {"type":TYPE,"MEMBER":JSON}
std::string message(std::string_view type, std::string_view member, std::string_view json) {
  std::string out = "{\"type\":\"";
  return out.append(type).append("\",\"").append(member).append("\":").append(json).append("}");
}

class JobsFormat final : public ChangeFormat {
 public:
  std::string begin(uint64_t sequence) const override {
    return message("begin", "sequence", std::to_string(sequence));
  }
  std::string resync() const override { return R"({"type":"resync"})"; }
  std::string job(const JobView& job) const override { return message("job", "job", listed_job_json(job)); }
  std::string left(JobId job, JobState state) const override {
    std::string out;
    JsonWriter json(out);
    json.begin_object().field("type", "left").field("job_id", job_name(job));
    json.field("state", to_string(state)).end_object();
    return out;
  }
  std::string forgotten(JobId job) const override {
    std::string out;
    JsonWriter(out).begin_object().field("type", "forgotten").field("job_id", job_name(job)).end_object();
    return out;
  }
  std::string node(const NodeView& node) const override { return message("node", "node", node_json(node)); }
  std::string overflow() const override { return R"({"type":"overflow"})"; }
  std::string marked(std::string piece, uint64_t sequence) const override {
    piece.pop_back();
    return piece.append(",\"sequence\":").append(std::to_string(sequence)).append("}");
  }
  std::string mark(uint64_t sequence) const override {
    return message("mark", "sequence", std::to_string(sequence));
  }
};

}  // namespace

std::unique_ptr<const ChangeFormat> jobs_change_format() { return std::make_unique<const JobsFormat>(); }

}  // namespace gpusched::api
