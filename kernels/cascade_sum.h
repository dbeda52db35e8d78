// Compiled for each target, with LAZYPLUG_TARGET its namespace.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/running_sum.h"

// Sums in the order in which the CPU's kernel of PyTorch (ATen/native/cpu/SumKernel.cpp) adds up, and hence with its
// bits: of fewer than 2^19 terms each.
namespace lazyplug::kernels::LAZYPLUG_TARGET {
namespace {

// The vectors of that kernel, which has no variant for AVX-512.
template <typename T>
struct CpuVector {
  using Type [[gnu::vector_size(32)]] = T;
  static constexpr int64_t kLanes = 32 / sizeof(T);
};

template <typename V, typename T>
V load_cpu_vector(const T* from) {
  V result;
  std::memcpy(&result, from, sizeof(V));
  return result;
}

// kWidth sums at once, of the terms read(i, 0) to read(i, kWidth - 1). Partial sums of 16 terms are added up by 16, and
// those again, in four levels.
template <int kWidth, typename V, typename Read>
void cascade(int64_t size, const Read& read, V (&sums)[kWidth]) {
  constexpr int kLevels = 4;
  constexpr int64_t kPower = 4;
  constexpr int64_t kStep = 1 << kPower;
  V levels[kLevels][kWidth] = {};
  const auto add = [&](int64_t i) {
    for (int column = 0; column < kWidth; ++column) {
      levels[0][column] += read(i, column);
    }
  };
  int64_t i = 0;
  if (size < kStep) { // the other levels would be zeros
    for (; i < size; ++i) {
      add(i);
    }
    std::memcpy(sums, levels[0], sizeof(sums));
    return;
  }
  while (i + kStep <= size) {
    for (const int64_t end = i + kStep; i < end; ++i) {
      add(i);
    }
    for (int level = 1; level < kLevels; ++level) {
      for (int column = 0; column < kWidth; ++column) {
        levels[level][column] += levels[level - 1][column];
        levels[level - 1][column] = V{};
      }
      if ((i & ((kStep - 1) << (level * kPower))) != 0) {
        break;
      }
    }
  }
  for (; i < size; ++i) {
    add(i);
  }
  for (int column = 0; column < kWidth; ++column) {
    sums[column] = levels[0][column];
    for (int level = 1; level < kLevels; ++level) {
      sums[column] += levels[level][column];
    }
  }
}

// One sum, of the terms read(0) to read(size - 1), in four parts that take turns.
template <typename V, typename Read>
V interleaved_sum(int64_t size, const Read& read) {
  constexpr int kParts = 4;
  if (size < kParts) { // likewise three of the parts
    V sum{};
    for (int64_t i = 0; i < size; ++i) {
      sum += read(i);
    }
    return sum;
  }
  V parts[kParts];
  const int64_t num_rounds = size / kParts;
  cascade<kParts>(num_rounds, [&](int64_t i, int part) { return read(i * kParts + part); }, parts);
  for (int64_t i = num_rounds * kParts; i < size; ++i) {
    parts[0] += read(i);
  }
  for (int part = 1; part < kParts; ++part) {
    parts[0] += parts[part];
  }
  return parts[0];
}

// Of elements without gaps: of those that fill no vector, then of the lanes of the vectors' sum.
template <typename T>
T sum_row(int64_t n, const T* from) {
  using V = typename CpuVector<T>::Type;
  constexpr int64_t kLanes = CpuVector<T>::kLanes;
  if (n < kLanes) {
    return interleaved_sum<T>(n, [from](int64_t i) { return from[i]; });
  }
  const V vector = interleaved_sum<V>(n / kLanes, [from](int64_t i) { return load_cpu_vector<V>(from + i * kLanes); });
  T sum = 0;
  for (int64_t i = n / kLanes * kLanes; i < n; ++i) {
    sum += from[i];
  }
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    sum += vector[lane];
  }
  return sum;
}

// Levels 1 and up of a cascade take over what the one below them holds, after so many rounds.
template <typename T>
void carry(RunningSum<T>& sum) {
  using V = typename CpuVector<T>::Type;
  constexpr int kPower = 4;
  for (int level = 1; level < RunningSum<T>::kLevels; ++level) {
    for (int i = 0; i < RunningSum<T>::kRound; i += RunningSum<T>::kLanes) {
      T* const below = sum.levels[level - 1] + i;
      T* const above = sum.levels[level] + i;
      const V both = load_cpu_vector<V>(above) + load_cpu_vector<V>(below);
      std::memcpy(above, &both, sizeof(V));
      std::memset(below, 0, sizeof(V));
    }
    if ((sum.num_rounds & (int64_t{15} << (level * kPower))) != 0) {
      break;
    }
  }
}

template <typename T>
void add_rounds(RunningSum<T>& sum, int64_t num_rounds, const T* from) {
  using V = typename CpuVector<T>::Type;
  constexpr int kParts = RunningSum<T>::kParts;
  constexpr int kLanes = RunningSum<T>::kLanes;
  constexpr int64_t kStep = 16;
  while (num_rounds > 0) {
    const int64_t count = std::min(num_rounds, kStep - sum.num_rounds % kStep);
    V parts[kParts];
    std::memcpy(parts, sum.levels[0], sizeof(parts));
    for (int64_t i = 0; i < count; ++i) {
      for (V& part : parts) {
        part += load_cpu_vector<V>(from);
        from += kLanes;
      }
    }
    std::memcpy(sum.levels[0], parts, sizeof(parts));
    num_rounds -= count;
    sum.num_rounds += count;
    if (sum.num_rounds % kStep == 0) {
      carry(sum);
    }
  }
}

template <typename T>
void add_to_sum(RunningSum<T>& sum, int64_t n, const T* from) {
  constexpr int kRound = RunningSum<T>::kRound;
  if (sum.num_rest != 0) {
    const int64_t count = std::min(n, kRound - sum.num_rest);
    std::copy_n(from, count, sum.rest + sum.num_rest);
    sum.num_rest += count;
    n -= count;
    from += count;
    if (sum.num_rest != kRound) {
      return;
    }
    add_rounds(sum, 1, sum.rest);
  }
  add_rounds(sum, n / kRound, from);
  sum.num_rest = n % kRound;
  std::copy_n(from + n - sum.num_rest, sum.num_rest, sum.rest);
}

// As interleaved_sum() and sum_row() end.
template <typename T>
T finish_sum(const RunningSum<T>& sum) {
  using V = typename CpuVector<T>::Type;
  constexpr int kParts = RunningSum<T>::kParts;
  constexpr int kLanes = RunningSum<T>::kLanes;
  V parts[kParts];
  std::memcpy(parts, sum.levels[0], sizeof(parts));
  for (int part = 0; part < kParts; ++part) {
    for (int level = 1; level < RunningSum<T>::kLevels; ++level) {
      parts[part] += load_cpu_vector<V>(sum.levels[level] + part * kLanes);
    }
  }
  const int64_t num_in_vectors = sum.num_rest / kLanes * kLanes;
  for (int64_t i = 0; i < num_in_vectors; i += kLanes) {
    parts[0] += load_cpu_vector<V>(sum.rest + i);
  }
  for (int part = 1; part < kParts; ++part) {
    parts[0] += parts[part];
  }
  T result = 0;
  for (int64_t i = num_in_vectors; i < sum.num_rest; ++i) {
    result += sum.rest[i];
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    result += parts[0][lane];
  }
  return result;
}

// As many columns as make four of V are summed up at once, others in the other order.
template <typename V, typename T>
int64_t sum_columns_by(int64_t rows, int64_t columns, int64_t first, const T* from, T* out) {
  constexpr int kWidth = 4;
  constexpr int64_t kLanes = sizeof(V) / sizeof(T);
  for (; first + kWidth * kLanes <= columns; first += kWidth * kLanes) {
    V sums[kWidth];
    cascade<kWidth>(
        rows,
        [=](int64_t row, int column) { return load_cpu_vector<V>(from + row * columns + first + column * kLanes); },
        sums);
    std::memcpy(out + first, sums, sizeof(sums));
  }
  for (; first + kLanes <= columns; first += kLanes) {
    const V sum =
        interleaved_sum<V>(rows, [=](int64_t row) { return load_cpu_vector<V>(from + row * columns + first); });
    std::memcpy(out + first, &sum, sizeof(sum));
  }
  return first;
}

// Of a matrix without gaps, row by row; more than one row and column.
template <typename T>
void sum_columns(int64_t rows, int64_t columns, const T* from, T* out) {
  using V = typename CpuVector<T>::Type;
  if (columns < CpuVector<T>::kLanes) {
    sum_columns_by<T>(rows, columns, 0, from, out);
    return;
  }
  for (int64_t i = sum_columns_by<V>(rows, columns, 0, from, out); i < columns; ++i) {
    out[i] = interleaved_sum<T>(rows, [=](int64_t row) { return from[row * columns + i]; });
  }
}

} // namespace
} // namespace lazyplug::kernels::LAZYPLUG_TARGET
