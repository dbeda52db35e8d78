// Compiled for each target, with LAZYPLUG_TARGET its namespace.
#include "kernels/tile_loops.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

// MKL's, as in the CPU's kernels, which round one square root in six differently from the processor's instruction.
// Not there: neither have they.
extern "C" {
__attribute__((weak)) void vmsSqrt(int n, const float* a, float* out, long long mode);
__attribute__((weak)) void vmdSqrt(int n, const double* a, double* out, long long mode);
}

namespace lazyplug::kernels::LAZYPLUG_TARGET {
namespace {

// VML_HA | VML_FTZDAZ_OFF | VML_ERRMODE_IGNORE
constexpr long long kMklMode = 0x2 | 0x00140000 | 0x00000100;

// Where the target has no such instruction, the CPU's kernels round twice.
template <typename T>
T multiply_add(T a, T b, T c) {
#ifdef __FMA__
  return std::is_same_v<T, float> ? __builtin_fmaf(a, b, c) : __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}

template <Opcode kOpcode, typename T>
T apply(T a, T b, T c, T s) {
  switch (kOpcode) {
    case Opcode::kCopy:
      return a;
    case Opcode::kNeg:
      return -a;
    case Opcode::kAbs:
      return std::abs(a);
    case Opcode::kSqrt:
      return std::sqrt(a);
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
    case Opcode::kAddcdiv:
      return a + s * b / c;
    case Opcode::kLerp:
      return a; // see below
    case Opcode::kEqual:
      return a == b;
    case Opcode::kNotEqual:
      return a != b;
    case Opcode::kLess:
      return a < b;
    case Opcode::kLessEqual:
      return a <= b;
    case Opcode::kGreater:
      return a > b;
    case Opcode::kGreaterEqual:
      return a >= b;
    case Opcode::kWhere:
      return a != T(0) ? b : c;
    case Opcode::kNumber:
      return s;
    case Opcode::kZero:
      return T(0);
    case Opcode::kOne:
      return T(1);
  }
}

// The output may be an input.
template <Opcode kOpcode, int kInputs, typename T>
void loop(int64_t n, T* out, const T* a, const T* b, const T* c, T s) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    out[i] = apply<kOpcode>(kInputs > 0 ? a[i] : T(0), kInputs > 1 ? b[i] : T(0), kInputs > 2 ? c[i] : T(0), s);
  }
}

template <typename T>
void lerp(int64_t n, T* out, const T* a, const T* b, const T* /*c*/, T s) {
  const bool is_small = std::abs(s) < T(0.5);
  const T factor = is_small ? s : s - 1;
  const T* base = is_small ? a : b;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    out[i] = multiply_add(factor, b[i] - a[i], base[i]);
  }
}

// Booleans may be other bytes than 0 and 1.
template <typename T, typename Memory>
T convert(const Memory* from) {
  if constexpr (std::is_same_v<Memory, bool>) {
    return *reinterpret_cast<const uint8_t*>(from) != 0;
  } else {
    return static_cast<T>(*from);
  }
}

template <typename T, typename Memory>
void load(int64_t n, T* out, const void* from, int64_t stride) {
  const auto* memory = static_cast<const Memory*>(from);
  if (stride == 1) {
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
void store_bool(int64_t n, bool* out, const T* from) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    out[i] = from[i] != T(0);
  }
}

void sqrt(int64_t n, float* out, const float* a, const float* b, const float* c, float s) {
  vmsSqrt ? vmsSqrt(static_cast<int>(n), a, out, kMklMode) : loop<Opcode::kSqrt, 1>(n, out, a, b, c, s);
}
void sqrt(int64_t n, double* out, const double* a, const double* b, const double* c, double s) {
  vmdSqrt ? vmdSqrt(static_cast<int>(n), a, out, kMklMode) : loop<Opcode::kSqrt, 1>(n, out, a, b, c, s);
}

} // namespace

template <typename T>
const Loops<T>& loops() {
  static constexpr Loops<T> table = {
      {loop<Opcode::kCopy, 1, T>,       loop<Opcode::kNeg, 1, T>,
       loop<Opcode::kAbs, 1, T>,        sqrt,
       loop<Opcode::kReciprocal, 1, T>, loop<Opcode::kAddNumber, 1, T>,
       loop<Opcode::kMulNumber, 1, T>,  loop<Opcode::kDivNumber, 1, T>,
       loop<Opcode::kSubNumber, 1, T>,  loop<Opcode::kAdd, 2, T>,
       loop<Opcode::kSub, 2, T>,        loop<Opcode::kMul, 2, T>,
       loop<Opcode::kDiv, 2, T>,        loop<Opcode::kAddcmul, 3, T>,
       loop<Opcode::kAddcdiv, 3, T>,    lerp<T>,
       loop<Opcode::kEqual, 2, T>,      loop<Opcode::kNotEqual, 2, T>,
       loop<Opcode::kLess, 2, T>,       loop<Opcode::kLessEqual, 2, T>,
       loop<Opcode::kGreater, 2, T>,    loop<Opcode::kGreaterEqual, 2, T>,
       loop<Opcode::kWhere, 3, T>,      loop<Opcode::kNumber, 0, T>,
       loop<Opcode::kZero, 0, T>,       loop<Opcode::kOne, 0, T>},
      {load<T, bool>,
       load<T, uint8_t>,
       load<T, int8_t>,
       load<T, int16_t>,
       load<T, int32_t>,
       load<T, int64_t>,
       load<T, float>,
       load<T, double>},
      store_bool<T>};
  return table;
}

template const Loops<float>& loops();
template const Loops<double>& loops();

} // namespace lazyplug::kernels::LAZYPLUG_TARGET
