#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "anticipate/observation.h"
#include "base/prng.h"
#include "base/time.h"

/// Invented days of developers: what a pilot's monitors would see, and when a GPU was needed in truth. Every
/// day has work that needs a GPU, work that looks like it and does not, and much that is neither. Some words
/// occur only on days that were kept out of tuning.
namespace gpusched::quality {

struct DayEvent {
  Time at;
  anticipate::Observation seen;
};

/// A time during which the developer had work for a GPU.
struct Need {
  Time begin, end;
  std::string what;
};

struct DeveloperDay {
  std::vector<DayEvent> events;  ///< In order of time.
  std::vector<Need> needs;
};

class DayMaker {
 public:
  DayMaker(uint64_t seed, bool is_kept_out) : random_(seed), is_kept_out_(is_kept_out) {}

  DeveloperDay make() {
    now_ = Time{hours(24 * 20'000).ns} + hours(9);
    const Time evening = now_ + hours(10);
    while (now_ < evening) {
      const uint64_t kind = random_.below(100);
      if (kind < 50) {
        small_things();
      } else if (kind < 78) {
        false_lead();
      } else {
        gpu_work();
      }
      pass(minutes(1), minutes(7));
    }
    std::ranges::stable_sort(day_.events, {}, &DayEvent::at);
    return std::move(day_);
  }

 private:
  using Words = std::vector<std::string>;

  void pass(Duration least, Duration most) {
    now_ = now_ + least +
           Duration{static_cast<int64_t>(random_.below(static_cast<uint64_t>((most - least).ns)))};
  }
  /// One of the words; those behind `known` only on days that were kept out.
  const std::string& one_of(const Words& words, std::size_t unknown = 0) {
    return words[random_.below(words.size() - (is_kept_out_ ? 0 : unknown))];
  }
  void see(anticipate::Source source, const std::string& origin, const std::string& text) {
    day_.events.push_back(
        {.at = now_,
         .seen = {
             .source = source, .monitor = std::string(to_string(source)), .origin = origin, .text = text}});
  }
  void shell(const std::string& text) { see(anticipate::Source::kShell, ".bash_history", text); }
  /// A command that runs: the process shows first, the shell's history afterwards.
  void runs(const std::string& text) {
    see(anticipate::Source::kProcess, text.substr(0, text.find(' ')), text);
    shell(text);
  }
  void log(const std::string& text) { see(anticipate::Source::kLog, "runs/today.log", text); }
  void save(const std::string& file, const std::string& text) { see(anticipate::Source::kFile, file, text); }
  std::string number(uint64_t below) { return std::to_string(random_.below(below)); }

  void need(Duration least, Duration most, const std::string& what) {
    const Time begin = now_;
    for (uint64_t step = 0; step < 6; ++step) {
      pass(seconds(20), minutes(2));
      log("step " + std::to_string(step * 100) + " loss=0." + number(999) + " lr=1e-4");
    }
    now_ = std::max(now_, begin + least);
    if (most > least) pass(Duration{0}, most - least);
    day_.needs.push_back({.begin = begin, .end = now_, .what = what});
  }

  void small_things() {
    const Words shells = {"git status",
                          "git commit -am 'train.py: fix the learning rate'",
                          "ls -la runs",
                          "vim train.py",
                          "cat configs/train.yaml",
                          "grep -rn torchrun scripts",
                          "pip install torch==2.4",
                          "python -m pytest tests/test_train.py",
                          "python train.py --help",
                          "make format",
                          "ssh gpu-box",
                          "docker ps",
                          "less runs/train.log",
                          "git log --oneline -- train.py",
                          "rg 'accelerate launch' docs",
                          "emacs finetune.py",
                          "scp model.pt box:",
                          "git diff train.py"};
    const Words logs = {
        "GET /api/v1/train 200 12ms", "user logged in",      "cache miss for key 17",
        "worker 3 heartbeat",         "retrying connection", "training data listing requested",
        "epoch time synchronised",    "loaded 12 routes",    "pretrained weights are cached"};
    const Words codes = {"def load(path):\n    return open(path)\n",
                         "import numpy as np\n",
                         "# train.py documents the options\n",
                         "class Config:\n    lr: float = 1e-4\n",
                         "return x.mean()\n",
                         "print('done')\n"};
    for (uint64_t count = 2 + random_.below(5); count > 0; --count) {
      switch (random_.below(3)) {
        case 0:
          shell(one_of(shells, 5));
          break;
        case 1:
          log(one_of(logs, 3));
          break;
        default:
          save("work/util.py", one_of(codes, 2));
      }
      pass(seconds(5), seconds(90));
    }
  }

  /// It looks like work for a GPU, and is none.
  void false_lead() {
    const Words commands = {"python train.py --device cpu --epochs 1",
                            "python train.py --dry-run",
                            "python preprocess.py --workers 8",
                            "python -m pytest -k finetune",
                            "python prepare_data.py",
                            "nvidia-smi",
                            "python -m py_compile train.py",
                            "git checkout train.py",
                            "python train_sklearn_baseline.py --cpu",
                            "python tokenize_corpus.py --input a.txt",
                            "python download_models.py",
                            "python train_baseline.py --model logistic",
                            "python constrained_search.py",
                            "python plot_training_curves.py",
                            "python train_sklearn.py",
                            "python trainees_report.py",
                            "python train_prophet.py --days 30",
                            "python report_training_costs.py",
                            "python -m trainer.plot --last",
                            "python deploy.py --gpus-quota 3",
                            "python split_train_test.py"};
    switch (random_.below(4)) {
      case 0:
        save("work/model.py",
             one_of({"model = Net().to(\"cuda\")\n", "x = x.cuda()\n", "device='cuda'\n"}, 1));
        break;
      case 1:
        log(one_of({"preprocessing failed: no space left", "tokenizing 12%", "dataset is not ready",
                    "training cancelled by the user before its start", "trainer config parsed"},
                   2));
        break;
      default:
        runs(one_of(commands, 5));
    }
  }

  /// Eight needs have one of each kind, and two scripts, in any order: one in eight has no sign before it.
  void gpu_work() {
    if (kinds_.empty()) kinds_ = {0, 1, 2, 3, 4, 5, 6, 7};
    const std::size_t drawn = random_.below(kinds_.size());
    const int kind = kinds_[drawn];
    kinds_.erase(kinds_.begin() + static_cast<std::ptrdiff_t>(drawn));
    switch (kind) {
      case 0:
        return launched();
      case 1:
      case 6:
        return scripted();
      case 2:
        return pipeline();
      case 3:
        return notebook();
      case 4:
        return serving();
      case 5:
        return remote();
      default:
        return unforeseeable();
    }
  }

  void launched() {
    pass(seconds(10), minutes(1));
    runs(one_of(
        {"torchrun --nproc_per_node=1 train.py --config configs/a.yaml",
         "accelerate launch --num_processes 1 finetune.py", "deepspeed train_ds.py --deepspeed ds.json",
         "python -m torch.distributed.run train.py", "HF_HOME=/data accelerate launch scripts/sft.py"},
        1));
    need(minutes(10), minutes(40), "launcher");
  }
  void scripted() {
    if (random_.below(2) == 0) runs("python prepare_data.py --out data");
    pass(seconds(30), minutes(4));
    runs(one_of(
        {"python train.py --epochs 3", "python3 -u scripts/train_lora.py --lr 1e-4",
         "/opt/venv/bin/python finetune_llama.py", "python -m trainer.train --config a.yaml",
         "python eval.py --device cuda", "python pretrain_gpt.py --bf16", "python run_dpo.py --beta 0.1"},
        2));
    need(minutes(8), minutes(30), "script");
  }
  void pipeline() {
    log("preprocessing started");
    pass(minutes(1), minutes(5));
    log(one_of({"preprocessing finished: 120000 rows", "dataset train is ready",
                "Tokenizing train: 100%|####|", "Tokenization complete, 4 shards"},
               1));
    pass(seconds(20), minutes(3));
    log(one_of({"***** Running training *****", "Starting training for 3 epochs",
                "INFO launching training stage", "Resuming from checkpoint step 2000"},
               1));
    need(minutes(10), minutes(40), "pipeline");
    log("training finished in 31 min");
  }
  void notebook() {
    save("work/explore.ipynb", one_of({"model = AutoModel.from_pretrained(n).to(\"cuda\")\n",
                                       "model.cuda()\n", "pipe = pipeline('x', device_map=\"auto\")\n"},
                                      1));
    pass(seconds(30), minutes(4));
    save("work/explore.ipynb",
         one_of({"trainer.train()\n", "trainer.fit(model, loader)\n", "loss.backward()\n"}, 1));
    if (random_.below(5) != 0) shell("nvidia-smi");
    pass(seconds(20), minutes(2));
    need(minutes(8), minutes(20), "notebook");
  }
  void serving() {
    runs(one_of({"vllm serve my/model --max-model-len 4096", "python -m vllm.entrypoints.openai.api_server",
                 "docker run --rm --gpus all my/image", "python -m sglang.launch_server --model x"},
                1));
    need(minutes(10), minutes(30), "server");
  }
  void remote() {
    log(one_of({"RuntimeError: No CUDA GPUs are available", "job waiting for GPU",
                "Found no NVIDIA driver on your system"},
               1));
    pass(seconds(30), minutes(2));
    need(minutes(8), minutes(20), "missing GPU");
  }
  /// Nothing that a rule knows comes before it.
  void unforeseeable() {
    runs(one_of({"make exp3", "./run.sh", "python main.py", "just bench"}, 1));
    need(minutes(8), minutes(15), "unknown");
  }

  Prng random_;
  const bool is_kept_out_;
  Time now_;
  std::vector<int> kinds_;  // Kinds of needs that are still to come of the eight.
  DeveloperDay day_;
};

}  // namespace gpusched::quality
