#include "cli/verbs/jobs/top_view.h"

#include <gtest/gtest.h>

#include <sstream>

#include "cli/terminal/text.h"
#include "cli/testing/now.h"

namespace gpusched::cli {
namespace {

Json parsed(const std::string& text) {
  const Result<Json> json = Json::parse(text);
  EXPECT_TRUE(json.ok()) << text;
  return json ? *json : Json();
}

/// A cluster of so many nodes of eight GPUs, and so many running and waiting jobs.
TopData sample(int nodes, int jobs) {
  TopData data;
  data.cluster = parsed(
      R"({"total_nodes":3,"online_nodes":2,"total_gpus":24,"available_gpus":9,"running_jobs":4,"pending_jobs":2})");
  for (int node = 0; node < nodes; ++node) {
    const std::string name = "node" + std::to_string(node);
    std::string devices;
    for (int i = 0; i < 8; ++i) {
      devices +=
          std::string(i > 0 ? "," : "") + R"({"id":")" + name + "-gpu-" + std::to_string(i) +
          R"(","model":"NVIDIA A100","memory_mb":81920,"memory_used_mb":40960,"utilization_percent":)" +
          std::to_string(i * 14) +
          R"(,"temperature_celsius":60,"state":"held","condition":"ok","held_by":"job-12"})";
    }
    data.nodes.push_back(parsed(R"({"name":")" + name + R"(","state":")" + (node == 1 ? "drained" : "ready") +
                                R"(","state_reason":"new fans","contact":"connected","devices":[)" + devices +
                                "]}"));
  }
  for (int i = 0; i < jobs; ++i) {
    const std::string id = std::to_string(100 + i);
    data.running.push_back(parsed(R"({"job_id":"job-)" + id + R"(","spec":{"name":"訓練 train-)" + id +
                                  R"("},"state":"running","resources":{"gpu_count":2},"priority":)" + id +
                                  R"(,"started_at":"2025-01-31T09:00:00Z"})"));
  }
  return data;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Top, FillsEveryScreenAndNeverMore) {
  const TopData small = sample(1, 3);
  const TopData large = sample(40, 300);
  for (const TopData* const data : {&small, &large}) {
    for (const ScreenSize size : {ScreenSize{80, 24}, {120, 30}, {200, 60}, {60, 15}, {40, 10}}) {
      TopControls controls;
      const std::vector<std::string> lines =
          lines_of(top_text(*data, controls, size, false, kNow, "lab", std::nullopt));
      EXPECT_EQ(static_cast<int>(lines.size()), size.rows) << size.columns << "x" << size.rows;
      if (size.columns < 80) continue;
      for (const std::string& line : lines) EXPECT_LE(display_width(line), size.columns) << line;
    }
  }
}

TEST(Top, ShowsGpusJobsAndWhatIsWrong) {
  const TopData data = sample(2, 2);
  TopControls controls;
  const std::string text = top_text(data, controls, {100, 40}, false, kNow, "lab", "no scheduler answers");
  EXPECT_NE(text.find("Nodes 2/3  GPUs 15/24 held"), std::string::npos) << text;
  EXPECT_NE(text.find("node1 drained (new fans)"), std::string::npos) << text;
  EXPECT_NE(text.find("node0-gpu-7"), std::string::npos);
  EXPECT_NE(text.find("98%"), std::string::npos);
  EXPECT_NE(text.find("40G/80G"), std::string::npos);
  EXPECT_NE(text.find("60°C job-12"), std::string::npos);
  EXPECT_NE(text.find("job-101"), std::string::npos);
  EXPECT_TRUE(text.ends_with("no scheduler answers")) << text;
}

TEST(Top, KeysSortFilterAndScroll) {
  const ScreenSize size{80, 24};
  const TopData data = sample(1, 50);
  TopControls controls;
  EXPECT_TRUE(controls.on_key('p', size));
  std::string text = top_text(data, controls, size, false, kNow, "lab", std::nullopt);
  EXPECT_NE(text.find("by priority ↓"), std::string::npos) << text;
  EXPECT_NE(text.find("job-149"), std::string::npos) << text;
  EXPECT_TRUE(controls.on_key('p', size));
  text = top_text(data, controls, size, false, kNow, "lab", std::nullopt);
  EXPECT_NE(text.find("job-100"), std::string::npos) << text;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(controls.on_key(kKeyDown, size));
  EXPECT_EQ(controls.first_job, 3);
  for (int i = 0; i < 99; ++i) EXPECT_TRUE(controls.on_key(kKeyPageDown, size));
  text = top_text(data, controls, size, false, kNow, "lab", std::nullopt);
  EXPECT_NE(text.find("-50 of 50"), std::string::npos) << text;
  EXPECT_TRUE(controls.on_key('s', size));
  EXPECT_TRUE(controls.on_key('s', size));
  text = top_text(data, controls, size, false, kNow, "lab", std::nullopt);
  EXPECT_NE(text.find("waiting"), std::string::npos);
  EXPECT_EQ(text.find("job-1"), text.find("job-12")) << text;  // Only the one that the GPUs name.
  EXPECT_TRUE(controls.on_key('h', size));
  EXPECT_NE(top_text(data, controls, size, false, kNow, "lab", std::nullopt).find("this help"),
            std::string::npos);
  EXPECT_TRUE(controls.on_key(kKeyEscape, size));
  EXPECT_FALSE(controls.on_key('q', size));
}

TEST(Bars, HaveEighthsOfAColumn) {
  EXPECT_EQ(bar(0, 6, Style::kPlain, false), "[    ]");
  EXPECT_EQ(bar(0.5, 6, Style::kPlain, false), "[██  ]");
  EXPECT_EQ(bar(1, 6, Style::kPlain, false), "[████]");
  EXPECT_EQ(bar(0.125, 6, Style::kPlain, false), "[▌   ]");
}

}  // namespace
}  // namespace gpusched::cli
