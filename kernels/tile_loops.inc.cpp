// Compiled for each target, with LAZYPLUG_TARGET its namespace.
#include "kernels/tile_loops.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/activations.h"
#include "kernels/cascade_sum.h"
#include "kernels/narrow_floats.h"
#include "kernels/pool_loops.h"
#include "kernels/random_loops.h"
#include "kernels/row_adds_loops.h"
#include "kernels/row_functions.h"
#include "kernels/vector_norms.h"
#ifdef __AVX2__
#include "kernels/batch_norm_loops.h"
#include "kernels/convolution_loops.h"
#include "kernels/filter_gradient_loops.h"
#include "kernels/matrix_product.h"
#endif

// MKL's, where the CPU's kernels use it. Not there: neither have they.
#define LAZYPLUG_MKL(name) __attribute__((weak)) void vmd##name(int n, const double* a, double* out, long long mode);
extern "C" {
// These round one square root in six differently from the processor's instruction.
__attribute__((weak)) void vmsSqrt(int n, const float* a, float* out, long long mode);
LAZYPLUG_MKL(Sqrt)
LAZYPLUG_MKL(Exp)
LAZYPLUG_MKL(Ln)
LAZYPLUG_MKL(Sin)
LAZYPLUG_MKL(Cos)
LAZYPLUG_MKL(Tanh)
LAZYPLUG_MKL(Erf)
}
#undef LAZYPLUG_MKL

namespace lazyplug::kernels::LAZYPLUG_TARGET {
namespace {

// 1 where the condition holds, else 0.
template <typename V>
V truth(Integers<V> condition) {
  return condition ? broadcast<V>(1) : broadcast<V>(0);
}

// What is the same for floats and integers.
template <Opcode kOpcode, typename V>
V apply_to_any(V a, V b, V c, V s) {
  using T = Element<V>;
  switch (kOpcode) {
    case Opcode::kCopy:
      return a;
    case Opcode::kNot:
      return truth<V>(a == T(0));
    case Opcode::kEqual:
      return truth<V>(a == b);
    case Opcode::kNotEqual:
      return truth<V>(a != b);
    case Opcode::kLess:
      return truth<V>(a < b);
    case Opcode::kLessEqual:
      return truth<V>(a <= b);
    case Opcode::kGreater:
      return truth<V>(a > b);
    case Opcode::kGreaterEqual:
      return truth<V>(a >= b);
    case Opcode::kWhere:
      return a != T(0) ? b : c;
    case Opcode::kNumber:
      return s;
    case Opcode::kZero:
      return broadcast<V>(0);
    case Opcode::kOne:
      return broadcast<V>(1);
    default:
      break; // see is_for_any()
  }
  __builtin_unreachable();
}

// Of integers, whose arithmetic is that of unsigned ones.
template <Opcode kOpcode, typename V>
V apply_to_integers(V a, V b, V s, V t) {
  using Unsigned = VectorOf<std::make_unsigned_t<Element<V>>>;
  const auto wraps = [](V x) { return reinterpret_cast<Unsigned>(x); };
  const auto wrapped = [](Unsigned x) { return reinterpret_cast<V>(x); };
  const V zero{};
  switch (kOpcode) {
    case Opcode::kNeg:
      return wrapped(-wraps(a));
    case Opcode::kAbs:
      return a < zero ? wrapped(-wraps(a)) : a;
    case Opcode::kAddNumber:
      return wrapped(wraps(a) + wraps(s));
    case Opcode::kMulNumber:
      return wrapped(wraps(a) * wraps(s));
    case Opcode::kSubNumber:
      return wrapped(wraps(a) - wraps(s));
    case Opcode::kAdd:
      return wrapped(wraps(a) + wraps(b) * wraps(s));
    case Opcode::kSub:
      return wrapped(wraps(a) - wraps(b) * wraps(s));
    case Opcode::kMul:
      return wrapped(wraps(a) * wraps(b));
    case Opcode::kMaximum:
      return a > b ? a : b;
    case Opcode::kMinimum:
      return a < b ? a : b;
    case Opcode::kClampMin:
      return a < s ? s : a;
    case Opcode::kClampMax:
      return a > s ? s : a;
    case Opcode::kClamp: {
      const V least = a < s ? s : a;
      return least > t ? t : least;
    }
    case Opcode::kRelu:
      return a < zero ? zero : a;
    case Opcode::kBitNot:
      return ~a;
    case Opcode::kBitAnd:
      return a & b;
    case Opcode::kBitOr:
      return a | b;
    case Opcode::kBitXor:
      return a ^ b;
    case Opcode::kSquare:
      return wrapped(wraps(a) * wraps(a));
    case Opcode::kCube:
      return wrapped(wraps(a) * wraps(a) * wraps(a));
    default:
      break; // see is_for_integers()
  }
  __builtin_unreachable();
}

template <Opcode kOpcode, typename V>
V apply_to_floats(V a, V b, V c, V s, V t) {
  using T = Element<V>;
  switch (kOpcode) {
    case Opcode::kNeg:
      return -a;
    case Opcode::kAbs:
      return abs(a);
    case Opcode::kSqrt:
    case Opcode::kSqrtExact:
      return sqrt(a);
    case Opcode::kReciprocal:
      return T(1) / a;
    case Opcode::kAddNumber:
      return a + s;
    case Opcode::kMulNumber:
      return a * s;
    case Opcode::kDivNumber:
      return a / s;
    case Opcode::kSubNumber:
      return a - s;
    case Opcode::kAdd:
      return multiply_add(b, s, a);
    case Opcode::kSub:
      return multiply_add(b, -s, a);
    case Opcode::kMul:
      return a * b;
    case Opcode::kDiv:
      return a / b;
    case Opcode::kAddcmul:
      return multiply_add(s * b, c, a);
    case Opcode::kMulAdd:
      return multiply_add(a, b, c);
    case Opcode::kAddcdiv:
      return a + s * b / c;
    case Opcode::kLerp:
      return lerp(a, b, s);
    case Opcode::kMaximum:
      return maximum(a, b);
    case Opcode::kMinimum:
      return minimum(a, b);
    case Opcode::kClampMin:
      return s != s ? s : at_least(a, s);
    case Opcode::kClampMax:
      return s != s ? s : at_most(a, s);
    case Opcode::kClamp: {
      const V clamped = t != t ? t : at_most(at_least(a, s), t);
      return s != s ? s : clamped;
    }
    case Opcode::kRelu:
      return at_least(a, T(0));
    case Opcode::kLeakyRelu:
      return a > T(0) ? a : a * s;
    case Opcode::kFloor:
      return round_by<Rounding::kFloor>(a);
    case Opcode::kCeil:
      return round_by<Rounding::kCeil>(a);
    case Opcode::kRound:
      return round_by<Rounding::kNearest>(a);
    case Opcode::kTrunc:
      return round_by<Rounding::kTrunc>(a);
    case Opcode::kToHalf:
      return to_narrow<Half>(a);
    case Opcode::kToBFloat16:
      return to_narrow<BFloat16>(a);
    case Opcode::kRsqrt:
      return T(1) / sqrt(a);
    case Opcode::kSquare:
      return a * a;
    case Opcode::kCube:
      return a * a * a;
    case Opcode::kInverseSquare:
      return T(1) / (a * a);
    case Opcode::kExp:
      return exp(a);
    case Opcode::kExpm1:
      return expm1(a);
    case Opcode::kLog:
      return log(a);
    case Opcode::kLog1p:
      return log1p(a);
    case Opcode::kSin:
      return sin(a);
    case Opcode::kCos:
      return cos(a);
    case Opcode::kTanh:
      return tanh(a);
    case Opcode::kErf:
      return erf(a);
    case Opcode::kSigmoid:
      return sigmoid(a);
    case Opcode::kSilu:
      return silu(a);
    case Opcode::kGelu:
      return gelu(a);
    case Opcode::kGeluTanh:
      return gelu_tanh(a);
    case Opcode::kSoftplus:
      return softplus(a, s, t);
    case Opcode::kSigmoidBackward:
      return sigmoid_backward(a, b);
    case Opcode::kTanhBackward:
      return tanh_backward(a, b);
    case Opcode::kThresholdBackward:
      return b <= s ? broadcast<V>(0) : a;
    case Opcode::kLeakyReluBackward:
      return b > T(0) ? a : a * s;
    case Opcode::kSiluBackward:
      return silu_backward(a, b);
    case Opcode::kGeluBackward:
      return gelu_backward(a, b);
    case Opcode::kGeluTanhBackward:
      return gelu_tanh_backward(a, b);
    case Opcode::kSoftplusBackward:
      return softplus_backward(a, b, s, t);
    case Opcode::kCopy:
    case Opcode::kNot:
    case Opcode::kEqual:
    case Opcode::kNotEqual:
    case Opcode::kLess:
    case Opcode::kLessEqual:
    case Opcode::kGreater:
    case Opcode::kGreaterEqual:
    case Opcode::kWhere:
    case Opcode::kNumber:
    case Opcode::kZero:
    case Opcode::kOne:
      break; // see apply_to_any()
    case Opcode::kBitNot:
    case Opcode::kBitAnd:
    case Opcode::kBitOr:
    case Opcode::kBitXor:
      break; // of integers
    case Opcode::kRowSum:
    case Opcode::kRowMean:
    case Opcode::kRowNorm:
    case Opcode::kRowVar:
    case Opcode::kRowStd:
    case Opcode::kSpread:
    case Opcode::kJoin:
    case Opcode::kSoftmax:
    case Opcode::kLogSoftmax:
    case Opcode::kSoftmaxBackward:
    case Opcode::kLogSoftmaxBackward:
    case Opcode::kLogSumExp:
    case Opcode::kRowCenter:
    case Opcode::kRowRstd:
    case Opcode::kNormalize:
      break; // loops of their own
  }
  __builtin_unreachable();
}

template <Opcode kOpcode, typename V>
V apply(V a, V b, V c, V s, V t) {
  using T = Element<V>;
  if constexpr (is_for_any(kOpcode)) {
    return apply_to_any<kOpcode>(a, b, c, s);
  } else if constexpr (std::is_integral_v<T>) {
    return apply_to_integers<kOpcode>(a, b, s, t);
  } else {
    return apply_to_floats<kOpcode>(a, b, c, s, t);
  }
}

// The output may be an input. What is left over of the last vector is computed by the same instructions. Flat: a call
// for each vector would read all constants again.
template <Opcode kOpcode, typename T>
[[gnu::flatten]] void loop(int64_t n, T* out, const T* a, const T* b, const T* c, T s, T t) {
  using V = VectorOf<T>;
  constexpr int kInputs = traits(kOpcode).num_inputs;
  const auto compute = [&](auto&& read) {
    return apply<kOpcode>(
        kInputs > 0 ? read(a) : V{},
        kInputs > 1 ? read(b) : V{},
        kInputs > 2 ? read(c) : V{},
        broadcast<V>(s),
        broadcast<V>(t));
  };
  int64_t i = 0;
  for (; i + kNumLanes<V> <= n; i += kNumLanes<V>) {
    store(compute([i](const T* input) { return load<V>(input + i); }), out + i);
  }
  if (i < n) {
    store_part(compute([=](const T* input) { return load_part<V>(input + i, n - i); }), out + i, n - i);
  }
}

// The columns of b begin at `begin`.
template <typename T>
void join_row(int64_t n, T* out, const T* a, const T* b, int64_t begin) {
  if (out != a) {
    std::copy_n(a, begin, out);
  }
  if (out != b) {
    std::copy_n(b + begin, n - begin, out + begin);
  }
}

template <Opcode kOpcode, typename T>
void compute_row(int64_t n, T* out, const T* a, const T* b, const T* c, [[maybe_unused]] T s) {
  switch (kOpcode) {
    case Opcode::kRowSum:
      out[0] = sum_row(n, a);
      break;
    case Opcode::kRowMean:
      out[0] = sum_row(n, a) / static_cast<T>(n);
      break;
    case Opcode::kSpread:
      std::fill_n(out, n, a[0]);
      break;
    case Opcode::kJoin:
      join_row(n, out, a, b, static_cast<int64_t>(s));
      break;
    case Opcode::kNormalize:
      normalize(n, out, a, b[0], c[0]);
      break;
    default:
      __builtin_unreachable();
  }
}

// What several rows are gone through at once for.
template <Opcode kOpcode>
constexpr bool kTakesSeveralRows =
    kOpcode == Opcode::kSoftmax || kOpcode == Opcode::kSoftmaxBackward || kOpcode == Opcode::kLogSoftmaxBackward ||
    kOpcode == Opcode::kRowCenter || kOpcode == Opcode::kRowRstd;

template <Opcode kOpcode, int kRows, typename T>
[[gnu::always_inline]] inline void
compute_rows(int64_t first, int64_t n, T* out, const T* a, [[maybe_unused]] const T* b, [[maybe_unused]] T s) {
  const T* row = a + first * n;
  if constexpr (kOpcode == Opcode::kSoftmax) {
    softmax<kRows>(n, out + first * n, row);
  } else if constexpr (kOpcode == Opcode::kSoftmaxBackward) {
    softmax_backward<kRows>(n, out + first * n, row, b + first * n);
  } else if constexpr (kOpcode == Opcode::kLogSoftmaxBackward) {
    log_softmax_backward<kRows>(n, out + first * n, row, b + first * n);
  } else if constexpr (kOpcode == Opcode::kRowCenter) {
    center<kRows>(n, row, out + first);
  } else {
    rstd<kRows>(n, row, b + first, s, out + first);
  }
}

// Slots may be the same: what makes a row of one element begins at the end, where nobody reads any more.
template <Opcode kOpcode, typename T>
void row_loop(int64_t num_rows, int64_t n, T* out, const T* a, const T* b, const T* c, [[maybe_unused]] T s, T /*t*/) {
  if constexpr (kOpcode == Opcode::kLogSoftmax) {
    return log_softmax(num_rows, n, out, a);
  }
  if constexpr (kOpcode == Opcode::kLogSumExp) {
    return logsumexp(num_rows, n, out, a);
  }
  if constexpr (kOpcode == Opcode::kRowNorm) {
    return norm_rows(num_rows, n, a, out);
  }
  if constexpr (kOpcode == Opcode::kRowVar || kOpcode == Opcode::kRowStd) {
    return variances(num_rows, n, a, s, /*takes_root=*/kOpcode == Opcode::kRowStd, out);
  }
  if constexpr (kTakesSeveralRows<kOpcode>) {
    return visit_rows<VectorOf<T>>(num_rows, [&](auto rows, int64_t first) __attribute__((always_inline)) {
      compute_rows<kOpcode, rows>(first, n, out, a, b, s);
    });
  }
  constexpr bool kIsBackward = !reduces_rows(kOpcode) && (reads_one(kOpcode, 0) || reads_one(kOpcode, 1));
  const auto step = [n](size_t input) { return reads_one(kOpcode, input) ? 1 : n; };
  for (int64_t i = 0; i < num_rows; ++i) {
    const int64_t row = kIsBackward ? num_rows - 1 - i : i;
    T* result = out + row * (reduces_rows(kOpcode) ? 1 : n);
    compute_row<kOpcode>(n, result, a + row * step(0), b + row * step(1), c + row * step(2), s);
  }
}

template <typename T>
using MklFunction = void (*)(int n, const T* a, T* out, long long mode);

template <Opcode kOpcode, typename T>
constexpr MklFunction<T> mkl_function() {
  if constexpr (std::is_same_v<T, float>) {
    return kOpcode == Opcode::kSqrt ? vmsSqrt : nullptr;
  } else if constexpr (std::is_same_v<T, double>) {
    switch (kOpcode) {
      case Opcode::kSqrt:
        return vmdSqrt;
      case Opcode::kExp:
        return vmdExp;
      case Opcode::kLog:
        return vmdLn;
      case Opcode::kSin:
        return vmdSin;
      case Opcode::kCos:
        return vmdCos;
      case Opcode::kTanh:
        return vmdTanh;
      case Opcode::kErf:
        return vmdErf;
      default:
        return nullptr;
    }
  } else {
    return nullptr;
  }
}

// VML_HA | VML_FTZDAZ_OFF | VML_ERRMODE_IGNORE
constexpr long long kMklMode = 0x2 | 0x00140000 | 0x00000100;

template <Opcode kOpcode, typename T>
void run_loop(int64_t n, T* out, const T* a, const T* b, const T* c, T s, T t) {
  const auto function = mkl_function<kOpcode, T>();
  function ? function(static_cast<int>(n), a, out, kMklMode) : loop<kOpcode>(n, out, a, b, c, s, t);
}

template <Opcode kOpcode, typename T>
constexpr Loop<T> loop_of() {
  constexpr bool kIsForDtype = std::is_integral_v<T>     ? is_for_integers(kOpcode)
                               : is_for_float32(kOpcode) ? std::is_same_v<T, float>
                                                         : is_for_floats(kOpcode);
  if constexpr (is_about_rows(kOpcode) || !kIsForDtype) {
    return nullptr;
  } else {
    return run_loop<kOpcode, T>;
  }
}
template <Opcode kOpcode, typename T>
constexpr RowLoop<T> row_loop_of() {
  constexpr bool kIsForDtype = is_for_float32(kOpcode) ? std::is_same_v<T, float> : std::is_floating_point_v<T>;
  if constexpr (is_about_rows(kOpcode) && kIsForDtype) {
    return row_loop<kOpcode, T>;
  } else {
    return nullptr;
  }
}

// Booleans may be other bytes than 0 and 1.
template <typename T, typename Memory>
T convert(const Memory* from) {
  if constexpr (std::is_same_v<Memory, bool>) {
    return *reinterpret_cast<const uint8_t*>(from) != 0;
  } else if constexpr (kIsNarrow<Memory>) {
    return static_cast<T>(widen(*from));
  } else {
    return static_cast<T>(*from);
  }
}

template <typename T, typename Memory>
void cast(int64_t n, T* out, const void* from, int64_t stride) {
  const auto* memory = static_cast<const Memory*>(from);
  if (stride == 1) {
    if constexpr (kIsNarrow<Memory> && std::is_same_v<T, float>) {
      return load_narrow(n, out, memory);
    }
    if constexpr (std::is_same_v<T, Memory>) {
      std::copy_n(memory, n, out);
      return;
    }
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      out[i] = convert<T>(memory + i);
    }
  } else if (stride == 0) {
    std::fill_n(out, n, convert<T>(memory));
  } else {
    for (int64_t i = 0; i < n; ++i) {
      out[i] = convert<T>(memory + i * stride);
    }
  }
}

template <typename T>
void store_bool(int64_t n, void* to, const T* from) {
  bool* out = static_cast<bool*>(to);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    out[i] = from[i] != T(0);
  }
}

template <typename T, typename Memory>
constexpr Store<T> store_of() {
  if constexpr (std::is_same_v<Memory, bool>) {
    return store_bool<T>;
  } else if constexpr (kIsNarrow<Memory> && std::is_same_v<T, float>) {
    return store_narrow<Memory>;
  } else {
    return nullptr;
  }
}

template <typename T>
constexpr void set_matrix_loops([[maybe_unused]] Loops<T>& loops) {
#ifdef __AVX2__
  if constexpr (std::is_same_v<T, float>) {
    loops.gemm = run_gemm;
    loops.pack_filters = pack_filters;
    loops.convolve = convolve;
    loops.find_moments = find_moments;
    loops.normalize_planes = normalize_planes;
    loops.sum_up_filters = sum_up_filters;
  }
#endif
}

// Of the dtypes of kMemoryDtypes, in their order.
template <typename T, typename... Memory>
constexpr void set_memory_loops(Loops<T>& loops) {
  static_assert(sizeof...(Memory) == std::size(kMemoryDtypes));
  size_t i = 0;
  ((loops.loads[i] = cast<T, Memory>, loops.stores[i++] = store_of<T, Memory>()), ...);
}

template <typename T, size_t... kIndices>
constexpr Loops<T> make_loops(std::index_sequence<kIndices...>) {
  Loops<T> loops{
      {loop_of<static_cast<Opcode>(kIndices), T>()...},
      {row_loop_of<static_cast<Opcode>(kIndices), T>()...}};
  loops.num_lanes = kNumLanes<VectorOf<T>>;
  set_memory_loops<T, bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double, Half, BFloat16>(loops);
  if constexpr (std::is_floating_point_v<T>) {
    loops.sum_columns = sum_columns<T>;
    loops.add_to_sum = add_to_sum<T>;
    loops.finish_sum = finish_sum<T>;
    loops.add_rows = add_rows<T>;
    set_matrix_loops(loops);
  }
  if constexpr (std::is_same_v<T, float>) {
    loops.norm_gradient = norm_gradient;
    loops.fill_random = fill_random;
    loops.fill_random_long = fill_integers;
    loops.fill_random_bool = fill_bernoulli<bool>;
    loops.find_largest = find_largest;
    loops.find_mean = find_mean;
  }
  return loops;
}

} // namespace

template <typename T>
const Loops<T>& loops() {
  static constexpr Loops<T> table = make_loops<T>(std::make_index_sequence<kNumOpcodes>());
  return table;
}

template const Loops<float>& loops();
template const Loops<double>& loops();
template const Loops<uint8_t>& loops();
template const Loops<int8_t>& loops();
template const Loops<int16_t>& loops();
template const Loops<int32_t>& loops();
template const Loops<int64_t>& loops();

} // namespace lazyplug::kernels::LAZYPLUG_TARGET
