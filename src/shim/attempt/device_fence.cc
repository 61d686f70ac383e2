#include <fcntl.h>
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "shim/cgroup.h"

namespace gpusched::shim {
namespace {

constexpr int32_t kKindMask = 0xffff;  ///< The lower half of access_type is the kind of device.
constexpr int32_t kAccessShift = 16;   ///< The upper half is what is wanted of it.
constexpr std::size_t kRulesMax = 512;

enum Register : uint8_t { kResult = 0, kContext = 1, kKind = 2, kAccess = 3, kMajor = 4, kMinor = 5 };

bpf_insn instruction(int code, uint8_t to, uint8_t from, std::size_t offset, int32_t value) {
  bpf_insn made{};
  made.code = static_cast<uint8_t>(code);
  made.dst_reg = to & 0xf;
  made.src_reg = from & 0xf;
  made.off = static_cast<int16_t>(offset);
  made.imm = value;
  return made;
}
bpf_insn load(uint8_t to, std::size_t offset) {
  return instruction(BPF_LDX | BPF_W | BPF_MEM, to, kContext, offset, 0);
}
bpf_insn set(uint8_t to, int32_t value) { return instruction(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value); }
bpf_insn unless_equal(uint8_t what, int32_t value) {
  return instruction(BPF_JMP | BPF_JNE | BPF_K, what, 0, 0, value);
}
bpf_insn leave() { return instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0); }

/// Instructions that let one rule's devices pass, and go on behind themselves with all others.
std::vector<bpf_insn> pass(const DeviceRule& rule) {
  const int32_t refused = (rule.read ? 0 : BPF_DEVCG_ACC_READ) | (rule.write ? 0 : BPF_DEVCG_ACC_WRITE) |
                          (rule.make ? 0 : BPF_DEVCG_ACC_MKNOD);
  std::vector<bpf_insn> tests;
  tests.push_back(unless_equal(kKind, rule.block ? BPF_DEVCG_DEV_BLOCK : BPF_DEVCG_DEV_CHAR));
  if (rule.major >= 0) tests.push_back(unless_equal(kMajor, rule.major));
  if (rule.minor >= 0) tests.push_back(unless_equal(kMinor, rule.minor));
  if (refused != 0) tests.push_back(instruction(BPF_JMP | BPF_JSET | BPF_K, kAccess, 0, 0, refused));
  const std::size_t count = tests.size();
  for (std::size_t i = 0; i < count; ++i) tests[i].off = static_cast<int16_t>(count + 1 - i);
  tests.push_back(set(kResult, 1));
  tests.push_back(leave());
  return tests;
}

std::vector<bpf_insn> program_of(const std::vector<DeviceRule>& rules) {
  std::vector<bpf_insn> program = {
      load(kKind, offsetof(bpf_cgroup_dev_ctx, access_type)),
      load(kMajor, offsetof(bpf_cgroup_dev_ctx, major)),
      load(kMinor, offsetof(bpf_cgroup_dev_ctx, minor)),
      instruction(BPF_ALU | BPF_MOV | BPF_X, kAccess, kKind, 0, 0),
      instruction(BPF_ALU | BPF_AND | BPF_K, kKind, 0, 0, kKindMask),
      instruction(BPF_ALU | BPF_RSH | BPF_K, kAccess, 0, 0, kAccessShift),
  };
  for (const DeviceRule& rule : rules) {
    const std::vector<bpf_insn> part = pass(rule);
    program.insert(program.end(), part.begin(), part.end());
  }
  program.push_back(set(kResult, 0));
  program.push_back(leave());
  return program;
}

int bpf(int command, bpf_attr& attributes) {
  return static_cast<int>(syscall(SYS_bpf, command, &attributes, sizeof attributes));
}

}  // namespace

std::string fence_devices(const std::string& path, const std::vector<DeviceRule>& rules) {
  if (rules.size() > kRulesMax) return "a device fence has at most " + std::to_string(kRulesMax) + " rules";
  const std::vector<bpf_insn> program = program_of(rules);
  bpf_attr load_it{};
  load_it.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
  load_it.insns = reinterpret_cast<uint64_t>(program.data());
  load_it.insn_cnt = static_cast<uint32_t>(program.size());
  load_it.license = reinterpret_cast<uint64_t>("Apache-2.0");
  const int loaded = bpf(BPF_PROG_LOAD, load_it);
  if (loaded < 0) return std::string("cannot load the device fence: ") + strerrordesc_np(errno);
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bpf_attr attach{};
  attach.target_fd = static_cast<uint32_t>(folder);
  attach.attach_bpf_fd = static_cast<uint32_t>(loaded);
  attach.attach_type = BPF_CGROUP_DEVICE;
  attach.attach_flags = BPF_F_ALLOW_MULTI;
  const bool attached = folder >= 0 && bpf(BPF_PROG_ATTACH, attach) == 0;
  const int error = errno;
  if (folder >= 0) close(folder);
  close(loaded);  // The group holds it from now on.
  if (attached) return {};
  return "cannot attach the device fence to " + path + ": " + strerrordesc_np(error);
}

}  // namespace gpusched::shim
