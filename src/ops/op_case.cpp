#include "ops/op_case.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace chiron {
namespace {

constexpr int64_t kGuard = 64;  // bytes before and after each array
constexpr unsigned char kGuardByte = 0xa5;

DType dtype_of_arg(const Arg& a, DType dtype) {
  return a.kind == Arg::ids ? DType::i32 : a.kind == Arg::accum ? acc_dtype(dtype) : dtype;
}

void write(Tensor t, const std::vector<double>& from) {
  if (t.dtype == DType::i32) {
    for (int64_t i = 0; i < t.numel(); ++i) t.data<int32_t>()[i] = static_cast<int32_t>(from[static_cast<size_t>(i)]);
    return;
  }
  by_float(t.dtype, [&]<class T>() {
    for (int64_t i = 0; i < t.numel(); ++i) t.data<T>()[i] = static_cast<T>(from[static_cast<size_t>(i)]);
  });
}

std::vector<double> read(View t) {
  std::vector<double> out(static_cast<size_t>(t.numel()));
  if (t.dtype == DType::i32) {
    for (int64_t i = 0; i < t.numel(); ++i) out[static_cast<size_t>(i)] = t.data<int32_t>()[i];
    return out;
  }
  by_float(t.dtype, [&]<class T>() {
    for (int64_t i = 0; i < t.numel(); ++i) out[static_cast<size_t>(i)] = static_cast<double>(t.data<T>()[i]);
  });
  return out;
}

/// The arguments of a case in the stream's device memory, each between two guard zones, and on the host.
struct Arguments {
  std::vector<std::vector<unsigned char>> memory;  // guard, array, guard
  std::vector<Tensor> host;                        // the arrays within `memory`
  std::vector<Tensor> tensors;                     // on the device; on the CPU the same as `host`

  Arguments(const OpCase& c, DType dtype, Stream& s) : s_(s) {
    for (const Arg& a : c.args) {
      DType d = dtype_of_arg(a, dtype);
      int64_t bytes = a.shape.numel() * size_of(d);
      auto& m = memory.emplace_back(static_cast<size_t>(bytes + 2 * kGuard + kAlign), kGuardByte);
      Tensor t{(reinterpret_cast<uintptr_t>(m.data()) + kGuard + kAlign - 1) / kAlign * kAlign, d, a.shape};
      host.push_back(t);
      bool filled = a.role == Arg::input || a.role == Arg::inout;
      CHECK(!filled || static_cast<int64_t>(a.contents.size()) == a.shape.numel(), "{} {}: argument {} has {} values",
            c.op, c.name, a.name, a.contents.size());
      if (filled)
        write(t, a.contents);
      else
        std::memset(reinterpret_cast<void*>(t.at), 0xff, static_cast<size_t>(bytes));  // NaN, or -1
      tensors.push_back(s.on_gpu() ? place_on_device(m, t) : t);
    }
  }

  /// Makes `host` and the guard zones what the device has.
  void download() {
    for (size_t i = 0; i < buffers_.size(); ++i)
      s_.download(memory[i].data(), {starts_[i], DType::u8, {static_cast<int64_t>(memory[i].size())}});
  }

  std::string broken_guard(const OpCase& c) const {
    for (size_t i = 0; i < memory.size(); ++i) {
      auto begin = reinterpret_cast<const unsigned char*>(host[i].at), end = begin + host[i].bytes();
      for (auto p = memory[i].data(); p < memory[i].data() + memory[i].size(); ++p)
        if ((p < begin || p >= end) && *p != kGuardByte)
          return fmt::format("wrote outside {} (byte {} of {})", c.args[i].name, p - begin, end - begin);
    }
    return "";
  }

 private:
  /// A copy of `m` in device memory; returns where `t` is there. Both have the same alignment.
  Tensor place_on_device(const std::vector<unsigned char>& m, Tensor t) {
    const auto size = static_cast<int64_t>(m.size());
    const auto offset = t.at - reinterpret_cast<uintptr_t>(m.data());
    Buffer& buffer = buffers_.emplace_back(s_.device(), size + kAlign);
    // The device's buffer is aligned, the host's is not: the copy starts where the array becomes aligned.
    const uintptr_t at = buffer.at() + (kAlign - offset % kAlign) % kAlign;
    starts_.push_back(at);
    s_.upload({at, DType::u8, {size}}, m.data());
    return {at + offset, t.dtype, t.shape};
  }

  static constexpr int64_t kAlign = 64;
  Stream& s_;
  std::vector<Buffer> buffers_;
  std::vector<uintptr_t> starts_;
};

std::span<const unsigned char> bytes_of(View t) {
  return {reinterpret_cast<const unsigned char*>(t.at), static_cast<size_t>(t.bytes())};
}

double norm_error(const std::vector<double>& got, const std::vector<double>& want) {
  double diff = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i]) {  // equal infinities too
      if (std::isfinite(want[i])) norm += want[i] * want[i];
      continue;
    }
    double d = got[i] - want[i];
    if (!std::isfinite(d)) return std::numeric_limits<double>::infinity();
    diff += d * d;
    norm += want[i] * want[i];
  }
  return diff == 0 ? 0 : std::sqrt(diff) / std::sqrt(norm > 0 ? norm : std::numeric_limits<double>::min());
}

double tolerance(DType dtype, bool product) {
  if (dtype == DType::f64) return 1e-12;
  if (dtype == DType::f32) return 1e-5;
  return product ? 1e-2 : 4e-3;
}

bool is_output(const Arg& a) { return a.role == Arg::output || a.role == Arg::inout; }

/// Scratch bytes that a call takes, found by a dry run.
int64_t planned_scratch(const OpCase& c, const std::vector<Tensor>& tensors, Device device) {
  Stream dry = Stream::dry(device);
  Stack scratch = Stack::dry();
  c.run(dry, tensors, scratch);
  return scratch.peak();
}

constexpr int64_t kPrepareScratch = 64 << 20;

/// Runs prepare and the op on fresh arguments; the scratch stack has exactly the planned size.
std::string execute(const OpCase& c, Stream& s, Arguments& a) {
  Stack big(s.device(), kPrepareScratch);
  if (c.prepare) c.prepare(s, a.tensors, big);
  a.download();
  std::vector<std::vector<unsigned char>> before;
  for (Tensor t : a.host) {
    auto bytes = bytes_of(t);
    before.emplace_back(bytes.begin(), bytes.end());
  }
  auto touched = [&](size_t i) { return !std::ranges::equal(before[i], bytes_of(a.host[i])); };
  Stack scratch(s.device(), planned_scratch(c, a.tensors, s.device()));
  a.download();
  for (size_t i = 0; i < c.args.size(); ++i)
    if (touched(i)) return fmt::format("the dry run touched {}", c.args[i].name);
  c.run(s, a.tensors, scratch);
  a.download();
  if (scratch.top() != 0) return "scratch memory was not released";
  for (size_t i = 0; i < c.args.size(); ++i)
    if (!is_output(c.args[i]) && touched(i)) return fmt::format("changed its input {}", c.args[i].name);
  return a.broken_guard(c);
}

}  // namespace

std::vector<double> random_normal(int64_t n, uint32_t seed, double scale, double shift) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  std::vector<double> out(static_cast<size_t>(n));
  for (double& x : out) x = normal(engine) * scale + shift;
  return out;
}

std::vector<double> random_ids(int64_t n, int64_t below, uint32_t seed) {
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int64_t> ids(0, below - 1);
  std::vector<double> out(static_cast<size_t>(n));
  for (double& x : out) x = static_cast<double>(ids(engine));
  return out;
}

std::string check_case(const OpCase& c, DType dtype, Stream& s) {
  Arguments a(c, dtype, s), again(c, dtype, s);
  if (auto wrong = execute(c, s, a); !wrong.empty()) return wrong;
  if (auto wrong = execute(c, s, again); !wrong.empty()) return wrong;

  Arrays want;
  if (c.reference) {
    Arguments clean(c, dtype, s);
    Stack big(s.device(), kPrepareScratch);
    if (c.prepare) c.prepare(s, clean.tensors, big);
    clean.download();
    for (Tensor t : clean.host) want.push_back(read(t));
    c.reference(want);
  } else {
    // The truth is the op's own f64 run on the arguments as rounded to the dtype.
    OpCase exact = c;
    ThreadPool pool(1);
    Stream cpu({}, pool);
    Arguments rounded(c, dtype, cpu);
    for (size_t i = 0; i < c.args.size(); ++i)
      if (c.args[i].role == Arg::input || c.args[i].role == Arg::inout) exact.args[i].contents = read(rounded.host[i]);
    Arguments truth(exact, DType::f64, cpu);
    if (auto wrong = execute(exact, cpu, truth); !wrong.empty()) return "in f64: " + wrong;
    for (Tensor t : truth.host) want.push_back(read(t));
  }
  for (size_t i = 0; i < c.args.size(); ++i) {
    if (!is_output(c.args[i])) continue;
    if (!std::ranges::equal(bytes_of(a.host[i]), bytes_of(again.host[i])))
      return fmt::format("{}: two runs differ", c.args[i].name);
    auto got = read(a.host[i]);
    double error = norm_error(got, want[i]), allowed = tolerance(dtype, c.product);
    if (c.args[i].kind == Arg::ids) allowed = 0;
    if (!(error <= allowed)) {
      size_t worst = 0;
      for (size_t j = 1; j < got.size(); ++j)
        if (!(std::abs(got[j] - want[i][j]) <= std::abs(got[worst] - want[i][worst]))) worst = j;
      return fmt::format("{}: error {:.3g} > {:.3g}; element {}: got {}, expected {}", c.args[i].name, error, allowed,
                         worst, got[worst], want[i][worst]);
    }
  }
  return "";
}

std::string compare_streams(const OpCase& c, DType dtype, Stream& a, Stream& b) {
  Arguments x(c, dtype, a), y(c, dtype, b);
  if (auto wrong = execute(c, a, x); !wrong.empty()) return wrong;
  if (auto wrong = execute(c, b, y); !wrong.empty()) return wrong;
  for (size_t i = 0; i < c.args.size(); ++i)
    if (!std::ranges::equal(bytes_of(x.host[i]), bytes_of(y.host[i]))) return c.args[i].name + " differs";
  return "";
}

std::string check_gradient(const OpCase& c, Stream& s) {
  if (!c.gradient.forward) return "";
  Arguments a(c, DType::f64, s);
  if (auto wrong = execute(c, s, a); !wrong.empty()) return wrong;
  Arguments probe(c, DType::f64, s);
  Stack scratch(s.device(), kPrepareScratch);
  auto loss = [&] {
    Scope scope(scratch);
    auto outputs = c.gradient.forward(s, probe.tensors, scratch);
    long double sum = 0;
    for (size_t o = 0; o < outputs.size(); ++o) {
      auto y = read(outputs[o]), dy = read(probe.tensors[static_cast<size_t>(c.gradient.upstream[o])]);
      for (size_t i = 0; i < y.size(); ++i) sum += static_cast<long double>(y[i]) * dy[i];
    }
    return sum;
  };
  for (auto [x, dx] : c.gradient.pairs) {
    auto ix = static_cast<size_t>(x), idx = static_cast<size_t>(dx);
    auto got = read(a.tensors[idx]);
    std::vector<double> want(got.size(), 0);
    // An inout gradient was added to what was there.
    if (c.args[idx].role == Arg::inout) want = c.args[idx].contents;
    double* p = probe.tensors[ix].data<double>();
    for (size_t i = 0; i < want.size(); ++i) {
      constexpr double kStep = 1e-5;
      double keep = p[i];
      p[i] = keep + kStep;
      auto up = loss();
      p[i] = keep - kStep;
      auto down = loss();
      p[i] = keep;
      want[i] += static_cast<double>((up - down) / (2 * kStep));
    }
    double error = norm_error(got, want);
    if (!(error <= 1e-7)) return fmt::format("d{}: error {:.3g} against finite differences", c.args[ix].name, error);
  }
  return "";
}

Timing time_case(const OpCase& c, DType dtype, Stream& s) {
  struct Work final : Trace {
    double flops = 0, bytes = 0;
    void begin(const OpInfo& info) override {
      flops += info.flops;
      for (auto list : {info.outputs, info.inputs})
        for (const Operand& o : list)
          if (o.shape.rank > 0) bytes += static_cast<double>(o.bytes());
    }
    void end(const OpInfo&) override {}
  };
  Arguments a(c, dtype, s);
  Stack big(s.device(), kPrepareScratch);
  if (c.prepare) c.prepare(s, a.tensors, big);
  Timing timing;
  Stack scratch(s.device(), planned_scratch(c, a.tensors, s.device()));
  Work work;
  s.set_trace(&work);
  c.run(s, a.tensors, scratch);
  s.set_trace(nullptr);
  timing.flops = work.flops;
  timing.bytes = c.f32_bytes > 0 ? c.f32_bytes * size_of(dtype) / 4.0 : work.bytes;
  constexpr int kRuns = 9;
  std::vector<double> times;
  for (int i = 0; i < kRuns; ++i) {
    const auto start = std::chrono::steady_clock::now();
    c.run(s, a.tensors, scratch);
    s.sync();
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::ranges::sort(times);
  timing.seconds = times[kRuns / 2];
  return timing;
}

}  // namespace chiron
