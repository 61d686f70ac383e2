#include "anticipate/rule.h"

namespace gpusched::anticipate {
namespace {

using enum Source;

/// Commands that only look at a training script, or keep it from the GPU.
const std::vector<std::string> kNotRun = {
    "--help", "--version", "--dry-run", "--dry_run",  "--device cpu", "--device=cpu",
    "--cpu",  "--no-cuda", "--no_cuda", "py_compile", "pytest",       "pip install",
    "grep",   "git",       "pylint",    "flake8",     "black",        "ruff",
    "mypy",   "*sklearn*", "*xgboost*", "rg",         "less",         "cat",
    "vim",    "emacs",     "sed",       "--use_cpu",  "--list"};

Rule launcher() {
  return {
      .name = "launcher",
      .sources = {kShell, kProcess},
      .any = {"torchrun", "accelerate launch", "deepspeed", "horovodrun", "python*-m torch.distributed",
              "mpirun*python*.py"},
      .none = kNotRun,
      .weight = 100,
      .gpus_from = {"--nproc_per_node", "--nproc-per-node", "--num_processes", "--num_gpus", "--num-gpus"}};
}

Rule training_script() {
  return {.name = "training-script",
          .sources = {kShell, kProcess},
          .any = {"python*/train.py", "python* train.py", "python*/train_*.py", "python* train_*.py",
                  "python*/train-*.py", "python* train-*.py", "python*_train.py", "python*pretrain*.py",
                  "python*finetune*.py", "python*fine_tune*.py", "python*-m*.train", "python* -m train",
                  "python*-m*finetune", "python*/sft*.py", "python* sft*.py", "python*_sft.py",
                  "python* dpo*.py", "python*_dpo.py"},
          .none = kNotRun,
          .weight = 100,
          .gpus_from = {"--gpus", "--num_gpus", "--num-gpus", "--devices"}};
}

Rule inference_server() {
  return {.name = "inference-server",
          .sources = {kShell, kProcess},
          .any = {"vllm serve", "vllm.entrypoints", "text-generation-launcher", "tritonserver",
                  "sglang.launch_server", "docker run*--gpus", "podman run*--gpus"},
          .none = kNotRun,
          .weight = 100,
          .gpus_from = {"--tensor-parallel-size", "--tp-size", "--tp"}};
}

Rule evaluation_script() {
  return {.name = "gpu-option",
          .sources = {kShell, kProcess},
          .any = {"python*--device cuda", "python*--device=cuda", "python*--cuda", "python*--fp16",
                  "python*--bf16", "python*--gpus"},
          .none = kNotRun,
          .weight = 100,
          .gpus_from = {"--gpus"}};
}

Rule preparation() {
  return {.name = "preparation",
          .sources = {kShell, kProcess},
          .any = {"python*preprocess*.py", "python*prepare*.py", "python*tokenize*.py",
                  "huggingface-cli download", "python*download*.py"},
          .none = kNotRun,
          .weight = 40};
}

Rule look_for_gpu() {
  return {.name = "look-for-gpu",
          .sources = {kShell, kProcess},
          .any = {"nvidia-smi", "nvtop", "gpustat", "torch.cuda.is_available"},
          .none = {"--help"},
          .weight = 40};
}

Rule data_ready() {
  return {.name = "data-ready",
          .sources = {kLog},
          .any = {"preprocessing*finished", "preprocessing*complete", "preprocessing*done", "dataset*ready",
                  "tokenization*complete", "tokenizing*100%", "data preparation*finished", "saved*shards to"},
          .none = {"failed", "error", "no space", "not ready", "not yet", "is not"},
          .weight = 60};
}

Rule training_begins() {
  return {.name = "training-begins",
          .sources = {kLog},
          .any = {"starting training", "start training", "begin training", "***** running training *****",
                  "launching training", "next stage: train", "queueing training", "resuming from checkpoint"},
          .none = {"cpu only", "on cpu", "device: cpu", "dry run"},
          .weight = 100};
}

Rule gpu_missing() {
  return {.name = "gpu-missing",
          .sources = {kLog},
          .any = {"no cuda gpus are available", "found no nvidia driver", "cuda unknown error",
                  "no gpu found", "waiting for gpu", "waiting for a gpu", "cuda out of memory"},
          .weight = 100};
}

Rule gpu_code() {
  return {
      .name = "gpu-code",
      .sources = {kFile},
      .any = {".to(\"cuda", ".to('cuda", ".cuda()", "device=\"cuda", "device='cuda", "device_map=\"auto\"",
              "accelerator=\"gpu\"", "accelerator='gpu'", "accelerator: gpu", "jax.devices(\"gpu\")"},
      .weight = 40};
}

Rule training_cell() {
  return {
      .name = "training-code",
      .sources = {kFile},
      .any = {"trainer.train()", "trainer.fit(", "model.fit(", "loss.backward()", "accelerator.backward("},
      .weight = 40};
}

Rule over() {
  return {.name = "training-over",
          .sources = {kLog},
          .any = {"training complete", "training completed", "training finished", "finished training",
                  "training done", "training aborted"},
          .meaning = Meaning::kOver};
}

}  // namespace

std::vector<Rule> builtin_rules() {
  return {launcher(),    training_script(), inference_server(), evaluation_script(),
          preparation(), look_for_gpu(),    data_ready(),       training_begins(),
          gpu_missing(), gpu_code(),        training_cell(),    over()};
}

}  // namespace gpusched::anticipate
