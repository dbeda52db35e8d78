// Functions of rows. Compiled within each target's namespace, as kernels/vector.h is. The output may be an input.
#pragma once

#include <utility>

#include "kernels/norm_gradient.h"
#include "kernels/vector_math.h"

namespace lazyplug::kernels::LAZYPLUG_TARGET {
namespace {

// What is made of a row, such as its sum: of each kPartials-th element first, in order, whatever the target's vectors.
constexpr int kPartials = 32;
template <typename V>
constexpr int kNumColumns = kPartials * sizeof(Element<V>) / sizeof(V);
template <typename V>
using Columns = std::make_integer_sequence<int, kNumColumns<V>>;

template <typename V>
struct Partials {
  V of[kNumColumns<V>];

  explicit Partials(Element<V> start = 0) {
    for (V& column : of) {
      column = broadcast<V>(start);
    }
  }
};

// A vector of a row, or the few elements at its end.
template <typename V>
struct Whole {
  V load(const Element<V>* from, V /*rest*/ = V{}) const {
    return LAZYPLUG_TARGET::load<V>(from);
  }
  void store(V x, Element<V>* to) const {
    LAZYPLUG_TARGET::store(x, to);
  }
};
template <typename V>
struct Part {
  int64_t n;

  V load(const Element<V>* from, V rest = V{}) const {
    return load_part(from, n, rest);
  }
  void store(V x, Element<V>* to) const {
    store_part(x, to, n);
  }
};

// Calls visit(access, place, column) for all of a row in order.
template <typename V, typename Visit, int... kColumns>
[[gnu::always_inline]] inline void
visit_row(int64_t n, const Visit& visit, std::integer_sequence<int, kColumns...> /*columns*/) {
  constexpr int64_t kStep = kNumLanes<V>;
  int64_t i = 0;
  for (; i + kPartials <= n; i += kPartials) {
    (visit(Whole<V>{}, i + kColumns * kStep, kColumns), ...);
  }
  const auto visit_rest = [&](int column) __attribute__((always_inline)) {
    if (i + kStep <= n) {
      visit(Whole<V>{}, i, column);
    } else if (i < n) {
      visit(Part<V>{n - i}, i, column);
    }
    i += kStep;
  };
  (visit_rest(kColumns), ...);
}

template <typename V, typename Visit>
[[gnu::always_inline]] inline void visit_row(int64_t n, const Visit& visit) {
  visit_row<V>(n, visit, Columns<V>());
}

template <int kDistance, typename V, int... kLanes>
V rotate(V x, std::integer_sequence<int, kLanes...> /*lanes*/) {
  return __builtin_shufflevector(x, x, ((kLanes + kDistance) % sizeof...(kLanes))...);
}

// By halves, down to one, which is then in each lane.
template <int kDistance, typename V, typename Combine>
V fold_lanes(V x, const Combine& combine) {
  if constexpr (kDistance == 0) {
    return x;
  } else {
    const V other = rotate<kDistance>(x, std::make_integer_sequence<int, kNumLanes<V>>());
    return fold_lanes<kDistance / 2>(combine(x, other), combine);
  }
}

template <int kHalf, typename V, typename Combine>
[[gnu::always_inline]] inline V fold_columns(const V* columns, const Combine& combine) {
  if constexpr (kHalf == 0) {
    return columns[0];
  } else {
    V folded[kHalf];
#pragma GCC unroll 8
    for (int i = 0; i < kHalf; ++i) {
      folded[i] = combine(columns[i], columns[i + kHalf]);
    }
    return fold_columns<kHalf / 2>(folded, combine);
  }
}

template <typename V, typename Combine>
[[gnu::always_inline]] inline V fold(const Partials<V>& partials, const Combine& combine) {
  return fold_lanes<kNumLanes<V> / 2>(fold_columns<kNumColumns<V> / 2>(partials.of, combine), combine);
}

template <typename V>
[[gnu::always_inline]] inline V fold_sum(const Partials<V>& partials) {
  return fold(partials, [](V a, V b) { return a + b; });
}

// How many rows are gone through at once: what is made of one waits for itself, and not for the others.
template <typename V>
constexpr int kRowsTogether = kNumColumns<V> < 8 ? 8 / kNumColumns<V> : 1;

// Calls visit(std::integral_constant<int, rows>, first) for all rows in order, most of them so many at once.
template <typename V, typename Visit>
[[gnu::always_inline]] inline void visit_rows(int64_t num_rows, const Visit& visit) {
  constexpr int kMost = kRowsTogether<V>;
  int64_t row = 0;
  for (; row + kMost <= num_rows; row += kMost) {
    visit(std::integral_constant<int, kMost>(), row);
  }
  for (; row < num_rows; ++row) {
    visit(std::integral_constant<int, 1>(), row);
  }
}

constexpr float kLowest = -kInfinity;

// Of each of kRows rows, one after the other. NaN may be passed over.
template <int kRows, typename T, typename V>
[[gnu::always_inline]] inline void find_largest_of(int64_t n, const T* a, V (&result)[kRows]) {
  Partials<V> largest[kRows];
  for (Partials<V>& of_row : largest) {
    of_row = Partials<V>(kLowest);
  }
  const V rest = broadcast<V>(kLowest);
  visit_row<V>(n, [&](auto access, int64_t i, int column) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      V& of = largest[row].of[column];
      of = at_least(access.load(a + row * n + i, rest), of);
    }
  });
  for (int row = 0; row < kRows; ++row) {
    result[row] = fold(largest[row], [](V x, V y) { return at_least(x, y); });
  }
}

// x / divisor, nearly always rounded correctly, in less time.
template <typename V>
V divide(V x, V divisor, [[maybe_unused]] V inverse) {
#ifdef __AVX2__
  const V quotient = x * inverse;
  return multiply_add(multiply_add(-quotient, divisor, x), inverse, quotient);
#else
  return x / divisor;
#endif
}

// Of kRows rows. What is beyond a row, -inf, adds nothing. If the largest is infinite, or some are NaN, all become NaN.
template <int kRows, typename T>
[[gnu::always_inline]] inline void softmax(int64_t n, T* out, const T* a) {
  using V = VectorOf<T>;
  const V rest = broadcast<V>(kLowest);
  V largest[kRows];
  find_largest_of(n, a, largest);
  V sums[kRows];
  for (int row = 0; row < kRows; ++row) {
    Partials<V> partials(0);
    visit_row<V>(n, [&](auto access, int64_t i, int column) __attribute__((always_inline)) {
      const V power = exp(access.load(a + row * n + i, rest) - largest[row]);
      access.store(power, out + row * n + i);
      partials.of[column] += power;
    });
    sums[row] = fold_sum(partials);
  }
  for (int row = 0; row < kRows; ++row) {
    const V inverse = T(1) / sums[row];
    visit_row<V>(n, [&](auto access, int64_t i, int /*column*/) __attribute__((always_inline)) {
      T* place = out + row * n + i;
      access.store(divide(access.load(place), sums[row], inverse), place);
    });
  }
}

// Calls use(row, largest, logarithm) for each row: what is subtracted, so that no power overflows, and the logarithm of
// the sum of the powers of what is left, which is one for as many rows as a vector has lanes. `replace` may put
// something else in the place of the largest. A row may be written once it is used.
template <typename T, typename Replace, typename Use>
[[gnu::always_inline]] inline void
visit_log_sums(int64_t num_rows, int64_t n, const T* a, const Replace& replace, const Use& use) {
  using V = VectorOf<T>;
  constexpr int64_t kBlock = kNumLanes<V>;
  const V rest = broadcast<V>(kLowest);
  for (int64_t first = 0; first < num_rows; first += kBlock) {
    const int64_t end = num_rows - first < kBlock ? num_rows : first + kBlock;
    V largest[kBlock];
    T logarithms[kBlock] = {};
    visit_rows<V>(end - first, [&](auto rows, int64_t row) __attribute__((always_inline)) {
      V found[rows];
      find_largest_of(n, a + (first + row) * n, found);
      std::copy_n(found, int{rows}, largest + row);
    });
    for (int64_t row = first; row < end; ++row) {
      V& top = largest[row - first];
      top = replace(top);
      Partials<V> sums(0);
      visit_row<V>(n, [&](auto access, int64_t i, int column) __attribute__((always_inline)) {
        sums.of[column] += exp(access.load(a + row * n + i, rest) - top);
      });
      logarithms[row - first] = fold_sum(sums)[0];
    }
    store(log(load<V>(logarithms)), logarithms);
    for (int64_t row = first; row < end; ++row) {
      use(row, largest[row - first][0], logarithms[row - first]);
    }
  }
}

template <typename T>
void log_softmax(int64_t num_rows, int64_t n, T* out, const T* a) {
  using V = VectorOf<T>;
  const auto as_it_is = [](V largest) { return largest; };
  visit_log_sums(num_rows, n, a, as_it_is, [&](int64_t row, T largest, T log_sum) {
    const V top = broadcast<V>(largest);
    const V logarithm = broadcast<V>(log_sum);
    visit_row<V>(n, [&](auto access, int64_t i, int /*column*/) __attribute__((always_inline)) {
      access.store(access.load(a + row * n + i) - top - logarithm, out + row * n + i);
    });
  });
}

// Of a row of infinities, or whose largest is one, nothing is subtracted, as by PyTorch.
template <typename T>
void logsumexp(int64_t num_rows, int64_t n, T* out, const T* a) {
  using V = VectorOf<T>;
  const auto finite = [](V largest) { return abs(largest) == T(kInfinity) ? broadcast<V>(0) : largest; };
  visit_log_sums(num_rows, n, a, finite, [&](int64_t row, T largest, T logarithm) { out[row] = logarithm + largest; });
}

// Of the first n elements of each of kRows rows, `stride` apart, as distances from a guess.
template <int kRows, typename T, typename V>
[[gnu::always_inline]] inline void
sum_up(int64_t n, int64_t stride, const T* a, const V (&guess)[kRows], V (&result)[kRows]) {
  Partials<V> sums[kRows];
  visit_row<V>(n, [&](auto access, int64_t i, int column) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      sums[row].of[column] += access.load(a + row * stride + i, guess[row]) - guess[row];
    }
  });
  for (int row = 0; row < kRows; ++row) {
    result[row] = fold_sum(sums[row]);
  }
}

// Of kRows rows.
template <int kRows, typename T>
[[gnu::always_inline]] inline void softmax_backward(int64_t n, T* out, const T* gradient, const T* result) {
  using V = VectorOf<T>;
  Partials<V> sums[kRows];
  visit_row<V>(n, [&](auto access, int64_t i, int column) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      const int64_t place = row * n + i;
      V& sum = sums[row].of[column];
      sum = multiply_add(access.load(gradient + place), access.load(result + place), sum);
    }
  });
  for (int row = 0; row < kRows; ++row) {
    const V sum = fold_sum(sums[row]);
    visit_row<V>(n, [&](auto access, int64_t i, int /*column*/) __attribute__((always_inline)) {
      const int64_t place = row * n + i;
      access.store((access.load(gradient + place) - sum) * access.load(result + place), out + place);
    });
  }
}

// Of kRows rows.
template <int kRows, typename T>
[[gnu::always_inline]] inline void log_softmax_backward(int64_t n, T* out, const T* gradient, const T* result) {
  using V = VectorOf<T>;
  V guess[kRows] = {};
  V sums[kRows];
  sum_up(n, n, gradient, guess, sums);
  for (int row = 0; row < kRows; ++row) {
    visit_row<V>(n, [&](auto access, int64_t i, int /*column*/) __attribute__((always_inline)) {
      const int64_t place = row * n + i;
      const V product = exp(access.load(result + place)) * sums[row];
      access.store(access.load(gradient + place) - product, out + place);
    });
  }
}

// The means of kRows rows, summed up as distances from the mean of the first elements, which are small.
template <int kRows, typename T>
[[gnu::always_inline]] inline void center(int64_t n, const T* a, T* means) {
  using V = VectorOf<T>;
  const int64_t num_first = n < kPartials ? n : kPartials;
  V guess[kRows] = {};
  V sum[kRows];
  sum_up(num_first, n, a, guess, sum);
  for (int row = 0; row < kRows; ++row) {
    guess[row] = sum[row] / static_cast<T>(num_first);
  }
  sum_up(n, n, a, guess, sum);
  for (int row = 0; row < kRows; ++row) {
    means[row] = (guess[row] + sum[row] / static_cast<T>(n))[0];
  }
}

// Of kRows rows. The results may stand where the means do, or rows.
template <int kRows, typename T>
[[gnu::always_inline]] inline void rstd(int64_t n, const T* a, const T* means, T epsilon, T* results) {
  using V = VectorOf<T>;
  V mean[kRows];
  for (int row = 0; row < kRows; ++row) {
    mean[row] = broadcast<V>(means[row]);
  }
  Partials<V> sums[kRows];
  visit_row<V>(n, [&](auto access, int64_t i, int column) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      const V distance = access.load(a + row * n + i, mean[row]) - mean[row];
      sums[row].of[column] = multiply_add(distance, distance, sums[row].of[column]);
    }
  });
  for (int row = 0; row < kRows; ++row) {
    results[row] = T(1) / std::sqrt(fold_sum(sums[row])[0] / static_cast<T>(n) + epsilon);
  }
}

// Of a row, of each kPartials-th element first. What is beyond it is `rest`.
template <typename Add>
double sum_up_doubles(int64_t n, const float* a, double rest, const Add& add) {
  constexpr int64_t kStep = kNumLanes<Doubles>;
  Doubles sums[kPartials / kStep] = {};
  const auto add_all = [&](const auto& read) __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (int64_t column = 0; column < kPartials / kStep; ++column) {
      sums[column] = add(sums[column], read(column * kStep));
    }
  };
  int64_t i = 0;
  for (; i + kPartials <= n; i += kPartials) {
    add_all([&](int64_t place) __attribute__((always_inline)) {
      return __builtin_convertvector(load<HalfFloats>(a + i + place), Doubles);
    });
  }
  if (i < n) {
    double last[kPartials];
    std::fill_n(std::copy(a + i, a + n, last), i + kPartials - n, rest);
    add_all([&](int64_t place) { return load<Doubles>(last + place); });
  }
  const auto sum = [](Doubles x, Doubles y) { return x + y; };
  return fold_lanes<kStep / 2>(fold_columns<kPartials / kStep / 2>(sums, sum), sum)[0];
}

// In float64, as PyTorch's kernel computes them: squares may be beyond what float32 holds where roots are not.
inline void variances(int64_t num_rows, int64_t n, const float* a, float correction, bool takes_root, float* out) {
  const double divisor = std::max(static_cast<double>(n) - correction, 0.0);
  for (int64_t row = 0; row < num_rows; ++row, a += n) {
    const double mean =
        sum_up_doubles(n, a, 0, [](Doubles sum, Doubles x) { return sum + x; }) / static_cast<double>(n);
    const double squares = sum_up_doubles(n, a, mean, [mean](Doubles sum, Doubles x) {
      const Doubles distance = x - mean;
      return multiply_add(distance, distance, sum);
    });
    const double variance = squares / divisor;
    out[row] = static_cast<float>(takes_root ? std::sqrt(variance) : variance);
  }
}

template <typename T>
void normalize(int64_t n, T* out, const T* a, T mean, T rstd) {
  using V = VectorOf<T>;
  visit_row<V>(n, [&](auto access, int64_t i, int /*column*/) __attribute__((always_inline)) {
    access.store((access.load(a + i) - mean) * rstd, out + i);
  });
}

// Of kRows rows from `first` on at once, since the sums over rows are read and written for each; adds their parts.
template <int kRows>
void norm_gradient_of(const NormGradient& norm, int64_t first, float* of_weight, float* of_bias) {
  using V = Floats;
  const int64_t n = norm.row_length;
  const float* gradients = norm.gradient + first * n;
  const float* rows = norm.rows + first * n;
  struct Row {
    V mean;
    V rstd;
    Partials<V> sums{0};
    Partials<V> products{0};
  };
  Row of[kRows];
  for (int row = 0; row < kRows; ++row) {
    of[row].mean = broadcast<V>(norm.mean[first + row]);
    of[row].rstd = broadcast<V>(norm.rstd[first + row]);
  }
  visit_row<V>(n, [&](auto access, int64_t i, int column) __attribute__((always_inline)) {
    const V weight = access.load(norm.weight + i);
    V bias_part = access.load(of_bias + i);
    V weight_part = access.load(of_weight + i);
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      Row& each = of[row];
      const V given = access.load(gradients + row * n + i);
      const V normal = (access.load(rows + row * n + i, each.mean) - each.mean) * each.rstd;
      const V weighted = given * weight;
      each.sums.of[column] += weighted;
      each.products.of[column] = multiply_add(weighted, normal, each.products.of[column]);
      bias_part += given;
      weight_part = multiply_add(given, normal, weight_part);
    }
    access.store(bias_part, of_bias + i);
    access.store(weight_part, of_weight + i);
  });
  for (int row = 0; norm.of_rows && row < kRows; ++row) {
    const Row& each = of[row];
    const V shift = fold_sum(each.sums) / static_cast<float>(n);
    const V slope = fold_sum(each.products) / static_cast<float>(n);
    visit_row<V>(n, [&](auto access, int64_t i, int /*column*/) __attribute__((always_inline)) {
      const V normal = (access.load(rows + row * n + i) - each.mean) * each.rstd;
      const V weighted = access.load(gradients + row * n + i) * access.load(norm.weight + i);
      access.store(multiply_add(-normal, slope, weighted - shift) * each.rstd, norm.of_rows + (first + row) * n + i);
    });
  }
}

inline void norm_gradient(const NormGradient& norm, int64_t begin, int64_t end, float* of_weight, float* of_bias) {
  constexpr int kAtOnce = 2;
  for (; begin + kAtOnce <= end; begin += kAtOnce) {
    norm_gradient_of<kAtOnce>(norm, begin, of_weight, of_bias);
  }
  for (; begin < end; ++begin) {
    norm_gradient_of<1>(norm, begin, of_weight, of_bias);
  }
}

} // namespace
} // namespace lazyplug::kernels::LAZYPLUG_TARGET
