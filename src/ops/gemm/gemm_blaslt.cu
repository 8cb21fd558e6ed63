#include "ops/gemm/gemm_blaslt.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "gpu/gpu.h"

#if defined(__CUDACC__)
#include <cublasLt.h>
#elif defined(__HIP__)
#include <hipblaslt/hipblaslt.h>
#endif

namespace chiron::gpu {

#if defined(__CUDACC__) || defined(__HIP__)

namespace {

// The two libraries have one interface, with a prefix.
#if defined(__CUDACC__)
namespace lt {

using Handle = cublasLtHandle_t;
using Description = cublasLtMatmulDesc_t;
using Layout = cublasLtMatrixLayout_t;
using Preference = cublasLtMatmulPreference_t;
using Algo = cublasLtMatmulAlgo_t;
using Result = cublasLtMatmulHeuristicResult_t;
using Compute = cublasComputeType_t;
using Type = cudaDataType;
using NativeStream = cudaStream_t;

constexpr const char *kName = "cuBLASLt", *kPrefix = "cublasLt";
constexpr const char* kFiles[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
constexpr std::pair<const char*, const char*> kFolders[] = {{"CUDA_HOME", "/lib64/"}, {"CUDA_PATH", "/lib64/"}};
constexpr const char* kUsualFolder = "/usr/local/cuda/lib64/";

constexpr auto kOpA = CUBLASLT_MATMUL_DESC_TRANSA, kOpB = CUBLASLT_MATMUL_DESC_TRANSB;
constexpr auto kEpilogue = CUBLASLT_MATMUL_DESC_EPILOGUE, kBiasPointer = CUBLASLT_MATMUL_DESC_BIAS_POINTER;
constexpr auto kMaxWorkspace = CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
constexpr int32_t kNone = CUBLAS_OP_N, kTranspose = CUBLAS_OP_T;
constexpr uint32_t kBiasEpilogue = CUBLASLT_EPILOGUE_BIAS;
constexpr Compute kFull = CUBLAS_COMPUTE_32F, kTf32 = CUBLAS_COMPUTE_32F_FAST_TF32;
constexpr Type kFloat = CUDA_R_32F, kBf16 = CUDA_R_16BF, kF16 = CUDA_R_16F;

struct Functions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmulDescCreate) make_description;
  decltype(&cublasLtMatmulDescDestroy) destroy_description;
  decltype(&cublasLtMatmulDescSetAttribute) set_description;
  decltype(&cublasLtMatrixLayoutCreate) make_layout;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout;
  decltype(&cublasLtMatmulPreferenceCreate) make_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulAlgoGetHeuristic) find_algorithms;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtMatmulAlgoCheck) check;
};

int64_t version_of(const Functions& f, Handle) { return static_cast<int64_t>(f.version()); }

bool accepts(const Functions& f, Handle handle, Description d, Layout a, Layout b, Layout c, Layout out,
             const Algo& algo, int64_t workspace) {
  Result result{};
  return f.check(handle, d, a, b, c, out, &algo, &result) == 0 &&
         static_cast<int64_t>(result.workspaceSize) <= workspace;
}

/// No sums in 16 bits, and only what the operands' alignment allows.
int restrict_choice(const Functions& f, Preference preference, const std::array<uint32_t, 4>& alignments) {
  const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  int status = f.set_preference(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
  constexpr std::array kAlignments = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  for (size_t i = 0; i < kAlignments.size() && !status; ++i)
    status = f.set_preference(preference, kAlignments[i], &alignments[i], sizeof alignments[i]);
  return status;
}

}  // namespace lt
#else
namespace lt {

using Handle = hipblasLtHandle_t;
using Description = hipblasLtMatmulDesc_t;
using Layout = hipblasLtMatrixLayout_t;
using Preference = hipblasLtMatmulPreference_t;
using Algo = hipblasLtMatmulAlgo_t;
using Result = hipblasLtMatmulHeuristicResult_t;
using Compute = hipblasComputeType_t;
using Type = hipDataType;
using NativeStream = hipStream_t;

constexpr const char *kName = "hipBLASLt", *kPrefix = "hipblasLt";
constexpr const char* kFiles[] = {"libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"};
constexpr std::pair<const char*, const char*> kFolders[] = {{"ROCM_PATH", "/lib/"}, {"ROCM_HOME", "/lib/"}};
constexpr const char* kUsualFolder = "/opt/rocm/lib/";

constexpr auto kOpA = HIPBLASLT_MATMUL_DESC_TRANSA, kOpB = HIPBLASLT_MATMUL_DESC_TRANSB;
constexpr auto kEpilogue = HIPBLASLT_MATMUL_DESC_EPILOGUE, kBiasPointer = HIPBLASLT_MATMUL_DESC_BIAS_POINTER;
constexpr auto kMaxWorkspace = HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
constexpr int32_t kNone = HIPBLAS_OP_N, kTranspose = HIPBLAS_OP_T;
constexpr uint32_t kBiasEpilogue = HIPBLASLT_EPILOGUE_BIAS;
constexpr Compute kFull = HIPBLAS_COMPUTE_32F, kTf32 = HIPBLAS_COMPUTE_32F_FAST_TF32;
constexpr Type kFloat = HIP_R_32F, kBf16 = HIP_R_16BF, kF16 = HIP_R_16F;

struct Functions {
  decltype(&hipblasLtCreate) create;
  decltype(&hipblasLtDestroy) destroy;
  decltype(&hipblasLtMatmulDescCreate) make_description;
  decltype(&hipblasLtMatmulDescDestroy) destroy_description;
  decltype(&hipblasLtMatmulDescSetAttribute) set_description;
  decltype(&hipblasLtMatrixLayoutCreate) make_layout;
  decltype(&hipblasLtMatrixLayoutDestroy) destroy_layout;
  decltype(&hipblasLtMatmulPreferenceCreate) make_preference;
  decltype(&hipblasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&hipblasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&hipblasLtMatmulAlgoGetHeuristic) find_algorithms;
  decltype(&hipblasLtMatmul) matmul;
  decltype(&hipblasLtGetVersion) version;
  std::nullptr_t check;
};

int64_t version_of(const Functions& f, Handle handle) {
  int version = 0;
  return f.version(handle, &version) == 0 ? version : 0;
}

/// The library has no such question: what a file says of the same version is trusted.
bool accepts(const Functions&, Handle, Description, Layout, Layout, Layout, Layout, const Algo& algo,
             int64_t workspace) {
  return static_cast<int64_t>(algo.max_workspace_bytes) <= workspace;
}

int restrict_choice(const Functions&, Preference, const std::array<uint32_t, 4>&) { return 0; }

}  // namespace lt
#endif

static_assert(sizeof(lt::Algo) <= sizeof(BlasLt::Algorithm));

struct Library {
  lt::Functions functions{};
  std::string why_not;  // empty: it is open
};

template <class F>
bool find_function(void* file, const char* name, F& f) {
  if constexpr (!std::is_same_v<F, std::nullptr_t>) {
    f = reinterpret_cast<F>(dlsym(file, (std::string(lt::kPrefix) + name).c_str()));
    return f != nullptr;
  }
  return true;
}

void* open_file() {
  if (const char* path = std::getenv("CHIRON_BLASLT")) return dlopen(path, RTLD_NOW | RTLD_LOCAL);
  std::vector<std::string> folders = {""};
  for (const auto& [variable, below] : lt::kFolders)
    if (const char* root = std::getenv(variable)) folders.push_back(std::string(root) + below);
  folders.push_back(lt::kUsualFolder);
  for (const std::string& folder : folders)
    for (const char* name : lt::kFiles)
      if (void* file = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL)) return file;
  return nullptr;
}

Library open_library() {
  Library library;
  void* file = open_file();
  if (!file) {
    const char* text = dlerror();
    library.why_not = std::string("no ") + lt::kName + ": " + (text ? text : lt::kFiles[0]);
    return library;
  }
  lt::Functions& f = library.functions;
  if (!find_function(file, "Create", f.create) || !find_function(file, "Destroy", f.destroy) ||
      !find_function(file, "MatmulDescCreate", f.make_description) ||
      !find_function(file, "MatmulDescDestroy", f.destroy_description) ||
      !find_function(file, "MatmulDescSetAttribute", f.set_description) ||
      !find_function(file, "MatrixLayoutCreate", f.make_layout) ||
      !find_function(file, "MatrixLayoutDestroy", f.destroy_layout) ||
      !find_function(file, "MatmulPreferenceCreate", f.make_preference) ||
      !find_function(file, "MatmulPreferenceDestroy", f.destroy_preference) ||
      !find_function(file, "MatmulPreferenceSetAttribute", f.set_preference) ||
      !find_function(file, "MatmulAlgoGetHeuristic", f.find_algorithms) || !find_function(file, "Matmul", f.matmul) ||
      !find_function(file, "GetVersion", f.version) || !find_function(file, "MatmulAlgoCheck", f.check))
    library.why_not = std::string("a ") + lt::kName + " that lacks functions";
  return library;
}

lt::Type type_of(DType dtype) { return dtype == DType::f32 ? lt::kFloat : dtype == DType::bf16 ? lt::kBf16 : lt::kF16; }

void expect(int status, const char* doing) {
  if (status) throw DeviceError("{} of {}: status {}", doing, lt::kName, status);
}

/// A product as the library sees it: all in columns, so that C^T = op(B)^T op(A)^T.
class Call {
 public:
  Call(const lt::Functions& f, const Product& p, bool tf32) : f_(f), p_(p) {
    const bool narrow = p.a.dtype != DType::f32;
    expect(f.make_description(&description, tf32 && !narrow ? lt::kTf32 : lt::kFull, lt::kFloat), "a description");
    try {
      set(lt::kOpA, p.op_b == Op::none ? lt::kNone : lt::kTranspose);
      set(lt::kOpB, p.op_a == Op::none ? lt::kNone : lt::kTranspose);
      if (p.bias.present()) {
        set(lt::kEpilogue, lt::kBiasEpilogue);
        set(lt::kBiasPointer, reinterpret_cast<const void*>(p.bias.at));
      }
      a = layout(p.b);
      b = layout(p.a);
      c = layout(p.addend.present() ? p.addend : p.c);
      out = layout(p.c);
    } catch (...) {
      release();
      throw;
    }
  }
  ~Call() { release(); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  std::array<uint32_t, 4> alignments() const {
    auto of = [](const Rows& r) { return static_cast<uint32_t>(alignment_of(r)); };
    return {of(p_.b), of(p_.a), of(p_.addend.present() ? p_.addend : p_.c), of(p_.c)};
  }

  lt::Description description = nullptr;
  lt::Layout a = nullptr, b = nullptr, c = nullptr, out = nullptr;

 private:
  template <class Attribute, class T>
  void set(Attribute attribute, T value) {
    expect(f_.set_description(description, attribute, &value, sizeof value), "an attribute");
  }
  lt::Layout layout(const Rows& r) {
    lt::Layout l = nullptr;
    expect(f_.make_layout(&l, type_of(r.dtype), static_cast<uint64_t>(r.cols), static_cast<uint64_t>(r.rows), r.ld),
           "a layout");
    return l;
  }
  void release() {
    for (lt::Layout l : {a, b, c, out})
      if (l) f_.destroy_layout(l);
    f_.destroy_description(description);
  }

  const lt::Functions& f_;
  const Product& p_;
};

class Opened final : public BlasLt {
 public:
  Opened(const lt::Functions& f, int device) : f_(f) {
    expect(vendor::use_device(device), "the device");
    expect(f.create(&handle_), "a handle");
    name_ = std::string(lt::kName) + " " + std::to_string(lt::version_of(f, handle_));
  }
  ~Opened() override { f_.destroy(handle_); }

  const std::string& name() const override { return name_; }

  std::vector<Algorithm> candidates(const Product& p, bool tf32, int most) override {
    const Call call(f_, p, tf32);
    lt::Preference preference = nullptr;
    expect(f_.make_preference(&preference), "a preference");
    const auto workspace = static_cast<uint64_t>(product_workspace(p));
    lt::Result results[kMostCandidates];
    int found = 0;
    if (f_.set_preference(preference, lt::kMaxWorkspace, &workspace, sizeof workspace) ||
        lt::restrict_choice(f_, preference, call.alignments()) ||
        f_.find_algorithms(handle_, call.description, call.a, call.b, call.c, call.out, preference,
                           most < kMostCandidates ? most : kMostCandidates, results, &found))
      found = 0;  // the library does not do this product
    f_.destroy_preference(preference);
    std::vector<Algorithm> algorithms;
    for (int i = 0; i < found; ++i) {
      const lt::Result& result = results[i];
      if (result.state != 0 || result.workspaceSize > workspace) continue;
      Algorithm algorithm{};
      std::memcpy(algorithm.data(), &result.algo, sizeof result.algo);
      algorithms.push_back(algorithm);
    }
    return algorithms;
  }

  bool accepts(const Product& p, bool tf32, const Algorithm& algorithm) override {
    const Call call(f_, p, tf32);
    return lt::accepts(f_, handle_, call.description, call.a, call.b, call.c, call.out, unpack(algorithm),
                       product_workspace(p));
  }

  void multiply(Stream& s, const Product& p, bool tf32, const Algorithm& algorithm, Tensor workspace) override {
    const Call call(f_, p, tf32);
    const lt::Algo algo = unpack(algorithm);
    const float alpha = 1, beta = p.addend.present() ? 1.0f : 0.0f;
    auto at = [](uintptr_t address) { return reinterpret_cast<void*>(address); };
    expect(
        f_.matmul(handle_, call.description, &alpha, at(p.b.at), call.a, at(p.a.at), call.b, &beta,
                  at(p.addend.present() ? p.addend.at : p.c.at), call.c, at(p.c.at), call.out, &algo, at(workspace.at),
                  static_cast<size_t>(workspace.bytes()), reinterpret_cast<lt::NativeStream>(s.handle())),
        s.op_text().c_str());
  }

 private:
  static constexpr int kMostCandidates = 64;

  static lt::Algo unpack(const Algorithm& algorithm) {
    lt::Algo algo;
    std::memcpy(&algo, algorithm.data(), sizeof algo);
    return algo;
  }

  const lt::Functions& f_;
  lt::Handle handle_ = nullptr;
  std::string name_;
};

}  // namespace

bool has_blaslt() { return true; }

std::unique_ptr<BlasLt> BlasLt::open(int device, std::string& why_not) {
  static const Library library = open_library();
  why_not = library.why_not;
  return why_not.empty() ? std::make_unique<Opened>(library.functions, device) : nullptr;
}

#else

bool has_blaslt() { return false; }

std::unique_ptr<BlasLt> BlasLt::open(int, std::string& why_not) {
  why_not = "the emulator has no library of products";
  return nullptr;
}

#endif

}  // namespace chiron::gpu
