// Prints how far the functions of kernels/vector_math.h, and eager's, are from what float64 has, over all float32
// numbers, and how long they take on what is in the L1 cache.
//
//   accuracy [every <n>th number = 1] [names, separated by commas = all]

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>
#include <cstring>
#include <iostream>
#include <limits>
#include <string>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "kernels/tile_loops.h"
#include "test/cpp/kernels/functions.h"

namespace lazyplug::kernels {
namespace {

constexpr int64_t kBlock = 1 << 16;

struct Worst {
  double ulp = 0;
  float at = 0;
  double normal_ulp = 0; // where the exact result is no denormal number
  float normal_at = 0;
  double absolute = 0; // error, relative to the argument if that is above 1
  int64_t wrong_nan = 0;
  int64_t wrong_zero = 0; // its sign
  float example = 0;

  void add(const at::Tensor& x, const at::Tensor& results, const at::Tensor& exact) {
    const auto* arguments = x.const_data_ptr<float>();
    const auto* numbers = results.const_data_ptr<float>();
    const auto* right = exact.const_data_ptr<double>();
    for (int64_t i = 0; i < kBlock; ++i) {
      add(arguments[i], numbers[i], right[i]);
    }
  }
  void add(float x, float result, double exact) {
    const double error = ulps(result, exact);
    if (std::isinf(error)) {
      ++wrong_nan;
      example = x;
      return;
    }
    if (error > ulp) {
      ulp = error;
      at = x;
    }
    if (error > normal_ulp && std::abs(exact) >= 0x1p-126) {
      normal_ulp = error;
      normal_at = x;
    }
    if (std::isfinite(result) && std::isfinite(exact)) {
      absolute = std::max(absolute, std::abs(result - exact) / std::max(1.0F, std::abs(x)));
    }
    if (result == 0 && exact == 0 && std::signbit(result) != std::signbit(exact)) {
      ++wrong_zero;
      example = x;
    }
  }
};

std::ostream& operator<<(std::ostream& out, const Worst& worst) {
  out << "ulp " << worst.ulp << " at " << worst.at << ", normal " << worst.normal_ulp << " at " << worst.normal_at
      << ", absolute " << worst.absolute;
  if (worst.wrong_nan + worst.wrong_zero > 0) {
    out << ", NaN " << worst.wrong_nan << " zero's sign " << worst.wrong_zero << ", e.g. at " << worst.example;
  }
  return out;
}

at::Tensor block_of(int64_t first, int64_t every) {
  return at::arange(first, first + kBlock * every, every, at::kLong).to(at::kInt).view(at::kFloat);
}

at::Tensor run(Opcode opcode, const at::Tensor& x) {
  const bool is_gradient = traits(opcode).num_inputs == 2;
  const at::Tensor ones = at::ones_like(x);
  const at::Tensor result = at::empty_like(x);
  const float* argument = x.const_data_ptr<float>();
  const float* first = is_gradient ? ones.const_data_ptr<float>() : argument;
  loops<float>().of[static_cast<size_t>(
      opcode)](x.numel(), result.mutable_data_ptr<float>(), first, argument, nullptr, 1, kSoftplusThreshold);
  return result;
}

void print_accuracy(const Function& function, int64_t every) {
  Worst ours;
  Worst eagers;
  const int64_t step = kBlock * every;
  for (int64_t first = -(int64_t{1} << 31); first < int64_t{1} << 31; first += step) {
    const at::Tensor x = block_of(first, every);
    const at::Tensor exact = function.exact(x.to(at::kDouble));
    const at::Tensor result = run(function.opcode, x);
    const at::Tensor eager = function.eager(x);
    ours.add(x, result, exact);
    eagers.add(x, eager, exact);
  }
  std::cout << traits(function.opcode).name << "\n  ours:  " << ours << "\n  eager: " << eagers << std::endl;
}

// Nanoseconds, the best of several times.
template <typename Call>
double time_of(Call call) {
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 20; ++round) {
    constexpr int kCalls = 500;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) {
      call();
    }
    best = std::min(
        best,
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / kCalls);
  }
  return best;
}

void print_time(const Function& function) {
  const at::Tensor x = at::randn({512}).abs();
  const at::Tensor many = at::randn({1 << 14}).abs();
  at::Tensor result = at::empty_like(x);
  const float* argument = x.const_data_ptr<float>();
  const auto loop = loops<float>().of[static_cast<size_t>(function.opcode)];
  const double ours = time_of(
      [&] { loop(512, result.mutable_data_ptr<float>(), argument, argument, argument, 1, kSoftplusThreshold); });
  const double eagers = time_of([&] { function.eager(many); });
  std::cout << "  ns for 16 floats: ours " << ours / 32 << ", eager's op on 16,384 floats " << eagers / 1024
            << std::endl;
}

#ifdef __x86_64__
extern "C" {
__m512 Sleef_expf16_u10(__m512);
__m512 Sleef_tanhf16_u10(__m512);
__m512 Sleef_erff16_u10(__m512);
}

template <__m512 (*kFunction)(__m512)>
__attribute__((target("avx512f"))) void run_sleef(const float* from, float* to) {
  for (int i = 0; i < 512; i += 16) {
    _mm512_storeu_ps(to + i, kFunction(_mm512_loadu_ps(from + i)));
  }
}

void print_sleef() {
  const at::Tensor x = at::randn({512}).abs();
  const at::Tensor result = at::empty_like(x);
  const auto time = [&](auto function) {
    return time_of([&] { function(x.const_data_ptr<float>(), result.mutable_data_ptr<float>()); }) / 32;
  };
  std::cout << "ns for 16 floats, Sleef: exp " << time(run_sleef<Sleef_expf16_u10>) << ", tanh "
            << time(run_sleef<Sleef_tanhf16_u10>) << ", erf " << time(run_sleef<Sleef_erff16_u10>) << std::endl;
}
#else
void print_sleef() {}
#endif

void print_all(int64_t every, const std::string& names) {
  for (const Function& function : functions()) {
    const std::string name = std::string(",") + traits(function.opcode).name + ",";
    if (names.empty() || ("," + names + ",").find(name) != std::string::npos) {
      if (every > 0) {
        print_accuracy(function, every);
      } else {
        std::cout << traits(function.opcode).name << "\n";
      }
      print_time(function);
    }
  }
}

} // namespace
} // namespace lazyplug::kernels

int main(int argc, char** argv) {
  at::set_num_threads(1);
  std::cout << at::get_cpu_capability() << std::endl;
  if (at::get_cpu_capability() == "AVX512") {
    lazyplug::kernels::print_sleef();
  }
  lazyplug::kernels::print_all(argc > 1 ? std::stoll(argv[1]) : 1, argc > 2 ? argv[2] : "");
}
