#include "train/check.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "data/loader.h"
#include "io/box_copy.h"
#include "io/safetensors.h"
#include "io/tensor_files.h"
#include "train/device_batch.h"
#include "train/inference.h"
#include "train/weights.h"

namespace chiron {
namespace {

constexpr AdamWOptions kAdamW{.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};
constexpr float kLearningRate = 1e-2f, kMaxNorm = 1.0f;
constexpr int kSteps = 3;
constexpr double kGradientFloor = 1e-4;

using Values = std::vector<float>;

/// A dump, read piece by piece; remembers what was asked for.
class Dump {
 public:
  explicit Dump(const std::string& path) : file_(path) {}

  const SafetensorsFile& file() const { return file_; }

  Values floats(const std::string& name, const Shape& wanted) {
    const StoredTensor& tensor = at(name);
    Shape shape = shape_of(tensor, file_.path());
    if (shape != wanted)
      throw DataError("{}: {} has the shape {}, the model's {}", file_.path(), name, shape.str(), wanted.str());
    Values values(static_cast<size_t>(shape.numel()));
    Tensor flat{reinterpret_cast<uintptr_t>(values.data()), DType::f32, shape.rank ? shape : Shape{1}};
    file_.read({.name = name, .data = flat, .transposed = false, .part = whole(shape), .global = shape});
    return values;
  }

  /// An integer tensor (B, T) as int32, and its shape.
  std::vector<int32_t> ids(const std::string& name, Shape& shape) {
    const StoredTensor& tensor = at(name);
    shape = shape_of(tensor, file_.path());
    if (tensor.dtype != DType::i64 || shape.rank != 2 || shape.numel() == 0)
      throw DataError("{}: {} is {} {}, expected I64 of two dimensions, not empty", file_.path(), name, tensor.type,
                      shape.str());
    std::vector<int64_t> stored(static_cast<size_t>(shape.numel()));
    tensor.read(0, stored.data(), tensor.bytes);
    std::vector<int32_t> out;
    for (int64_t id : stored) out.push_back(static_cast<int32_t>(std::clamp<int64_t>(id, INT32_MIN, INT32_MAX)));
    return out;
  }

  /// Tensors that nothing asked for: the model knows nothing of them.
  std::vector<std::string> unused() const {
    std::vector<std::string> names;
    for (const StoredTensor& tensor : file_.tensors())
      if (!std::ranges::binary_search(asked_, tensor.name)) names.push_back(tensor.name);
    return names;
  }

 private:
  const StoredTensor& at(const std::string& name) {
    asked_.insert(std::ranges::lower_bound(asked_, name), name);
    return file_.at(name);
  }

  SafetensorsFile file_;
  std::vector<std::string> asked_;  // sorted
};

struct Whole {
  Shape shape;
  Values values;
};

/// Parts of the state, put together as whole tensors in Hugging Face's layout.
std::map<std::string, Whole> gather(Stream& s, const std::vector<StatePart>& parts) {
  std::map<std::string, Whole> all;
  const Staging staging(s);
  for (StatePart part : parts) {
    staging.hold(std::span(&part.data, 1));
    all[part.name].shape = part.global;
    Values& to = all[part.name].values;
    to.resize(static_cast<size_t>(part.global.numel()));
    copy_box(box_view(reinterpret_cast<uintptr_t>(to.data()), DType::f32, whole(part.global)), box_view(part));
  }
  return all;
}

double max_error(const Values& got, const Values& want) {
  CHECK(got.size() == want.size());
  double diff = 0, largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double d = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    if (!(d <= diff)) diff = d;  // keeps a NaN
    if (std::isnan(diff)) return diff;
    largest = std::max(largest, std::abs(static_cast<double>(want[i])));
  }
  return diff == 0 ? 0 : diff / largest;
}

double after_error(const Values& got, const Values& want, const Values& gradient) {
  CHECK(got.size() == want.size() && got.size() == gradient.size());
  double largest = 0, diff = 0, norm = 0;
  for (float g : gradient) largest = std::max(largest, std::abs(static_cast<double>(g)));
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::abs(static_cast<double>(gradient[i])) < kGradientFloor * largest) continue;
    const double d = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    diff += d * d;
    norm += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  return diff == 0 ? 0 : std::sqrt(diff / norm);
}

HostBatch read_batch(Dump& dump, const ModelConfig& model) {
  Shape shape, label_shape;
  HostBatch batch;
  batch.tokens = dump.ids("input_ids", shape);
  batch.labels = dump.ids("labels", label_shape);
  const std::string& file = dump.file().path();
  if (!(shape == label_shape)) throw DataError("{}: labels are {}, input_ids {}", file, label_shape.str(), shape.str());
  batch.sequences = shape[0];
  batch.length = shape[1];
  if (batch.length > model.max_seq_len)
    throw DataError("{}: sequences of {} tokens, but the model takes {}", file, batch.length, model.max_seq_len);
  for (int32_t id : batch.tokens)
    if (id < 0 || id >= model.vocab_size)
      throw DataError("{}: input_ids: {} is not in the vocabulary of {}", file, id, model.vocab_size);
  for (int32_t id : batch.labels)
    if (id != kIgnore && (id < 0 || id >= model.vocab_size))
      throw DataError("{}: labels: {} is neither {} nor in the vocabulary of {}", file, id, kIgnore, model.vocab_size);
  std::vector<int32_t> counts;
  for (int64_t i = 0; i < shape.numel(); ++i) {
    batch.positions.push_back(static_cast<int32_t>(i % batch.length));
    batch.index.push_back(static_cast<int32_t>(i));
  }
  sort_order(batch.tokens, model.vocab_size, batch.token_order, counts);
  sort_order(batch.positions, batch.length, batch.position_order, counts);
  return batch;
}

/// A TrainStep that computes as make_golden.py does, with stacks of the size that a dry run needs.
struct Steps {
  Steps(Stream& s, SavedModel& m, const HostBatch& host)
      : s_(s),
        m_(m),
        memory_(s.device(), {.sequences = host.sequences, .length = host.length}),
        batches_(memory_.upload(s, {&host, 1})),
        scalars_(s),
        step_(make(plan(host))) {}

  StepScalars run(bool update) {
    StepScalars scalars = scalars_.read(s_);
    scalars.learning_rate = kLearningRate;
    scalars.max_norm = kMaxNorm;
    scalars_.write(s_, scalars);
    if (update)
      step_.run(s_, batches_);
    else
      step_.gradients(s_, batches_);
    return scalars_.read(s_);
  }

 private:
  TrainStep::Setup setup() const {
    return {.compute = DType::f32, .policy = make_policy({}, *m_.model), .adamw = kAdamW};
  }
  TrainStep make(const Stacks& planned) {
    return {*m_.model, *m_.params, mesh_, setup(), Stacks::like(planned, s_.device()), scalars_.device()};
  }
  Stacks plan(const HostBatch& host) {
    TrainStep dry(*m_.model, *m_.params, mesh_, setup(), std::nullopt, scalars_.device());
    Stream stream = Stream::dry_like(s_);
    Stack tokens = Stack::dry(7);
    Batch batch = push_batch(tokens, host.sequences, host.length, false);
    dry.run(stream, std::span(&batch, 1));
    return std::move(dry).take_stacks();
  }

  Stream& s_;
  SavedModel& m_;
  DeviceBatches memory_;
  std::span<const Batch> batches_;
  Mesh mesh_ = Mesh::single();
  Scalars scalars_;
  TrainStep step_;
};

Values all_logits(Stream& s, const SavedModel& m, const HostBatch& batch) {
  Inference inference(s, m, DType::f32);
  Values out;
  for (int64_t b = 0; b < batch.sequences; ++b) {
    auto row =
        std::span(batch.tokens).subspan(static_cast<size_t>(b * batch.length), static_cast<size_t>(batch.length));
    auto logits = inference.logits(row, Inference::Rows::all);
    out.insert(out.end(), logits.begin(), logits.end());
  }
  return out;
}

}  // namespace

std::vector<Comparison> check_model(Stream& s, const std::string& folder, const std::string& path, double tolerance,
                                    Log& log) {
  SavedModel m = open_model(s, folder, {.training = true}, log);
  Dump dump(path);
  const HostBatch batch = read_batch(dump, m.model->config());
  const double allowed = tolerance > 0 ? tolerance : kCheckTolerance;
  std::vector<Comparison> results;
  auto compare = [&](const std::string& name, const Shape& shape, const Values& got) {
    results.push_back({name, max_error(got, dump.floats(name, shape)), allowed});
  };

  compare("logits", {batch.sequences, batch.length, m.model->config().vocab_size}, all_logits(s, m, batch));
  Steps steps(s, m, batch);
  StepScalars scalars = steps.run(false);
  compare("loss", {}, {scalars.sums[1] / static_cast<float>(scalars.tokens)});
  const auto gradients = gather(s, gradient_parts(*m.params));
  for (const auto& [name, whole] : gradients) compare("grad." + name, whole.shape, whole.values);

  Values losses, norms;
  for (int i = 0; i < kSteps; ++i) {
    scalars = steps.run(true);
    losses.push_back(scalars.loss);
    norms.push_back(scalars.grad_norm);
  }
  compare("step_loss", {kSteps}, losses);
  compare("step_gnorm", {kSteps}, norms);
  for (const auto& [name, whole] : gather(s, weight_parts(*m.params))) {
    const double error =
        after_error(whole.values, dump.floats("after." + name, whole.shape), dump.floats("grad." + name, whole.shape));
    results.push_back({"after." + name, error, tolerance > 0 ? tolerance : kCheckAfterTolerance});
  }
  if (auto unused = dump.unused(); !unused.empty())
    throw DataError("{} has tensors that the model knows nothing of: {}", path, listed(unused));
  return results;
}

}  // namespace chiron
