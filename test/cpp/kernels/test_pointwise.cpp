#include "kernels/pointwise.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernels/assembly.h"
#include "kernels/running_sum.h"
#include "test/cpp/kernels/tensors.h"

namespace lazyplug::kernels {
namespace {

class Pointwise : public testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(1);
  }

  // Runs a program, "= add 0 1 0 ;" and so on without its head, on inputs as they lie. The output has the dtype, unless
  // that is given.
  at::Tensor run(
      const std::string& instructions,
      const std::vector<at::Tensor>& inputs,
      const at::Tensor& out,
      std::vector<double> numbers = {},
      std::string dtype = {}) {
    Program like;
    like.dtype = out.scalar_type() == at::kBool ? at::kFloat : out.scalar_type();
    if (dtype.empty()) {
      const std::string text = to_string(like);
      dtype = text.substr(0, text.find(' '));
    }
    const auto program = parse(
        dtype + " memory " + std::to_string(inputs.size() + 1) + " slots 10 numbers " + std::to_string(numbers.size()) +
        " " + instructions);
    TORCH_CHECK(program, "no program: ", instructions);
    std::vector<Memory> memory;
    std::vector<PointwiseSpace::Input> places;
    for (const at::Tensor& input : inputs) {
      memory.push_back({const_cast<void*>(input.storage().data()), input.scalar_type()});
      places.push_back({input.storage_offset(), c10::DimVector(input.expand(out.sizes()).strides())});
    }
    memory.push_back({out.data_ptr(), out.scalar_type()});
    const PointwiseSpace space(out.sizes(), out.strides(), places);
    const bool is_in_place =
        std::any_of(inputs.begin(), inputs.end(), [&](const at::Tensor& input) { return input.is_alias_of(out); });
    if (const auto assembly = is_in_place ? nullptr : assemble(*program)) {
      kernels::run(*program, space, memory, numbers.data(), assembly.get());
      const at::Tensor assembled = out.clone();
      kernels::run(*program, space, memory, numbers.data());
      EXPECT_TRUE(at::equal(assembled, out)) << instructions;
    } else {
      kernels::run(*program, space, memory, numbers.data());
    }
    return out;
  }
};

TEST_F(Pointwise, InputsMayLieInAnyWay) {
  const at::Tensor a = at::randn({7, 130, 9});
  for (const at::Tensor& b :
       {at::randn({7, 130, 9}),
        at::randn({9, 130, 7}).permute({2, 1, 0}),
        at::randn({130, 7, 9}).transpose(0, 1),
        at::randn({7, 130, 20}).slice(2, 3, 12),
        at::randn({7, 260, 9}).slice(1, 0, 260, 2),
        at::randn({9}),
        at::randn({130, 1}),
        at::randn({7, 1, 9}),
        at::randn({7, 1, 1}),
        at::randn({5}).select(0, 3),
        at::randn({1, 130, 1})}) {
    EXPECT_TRUE(run("2 = mul 0 1 ;", {a, b}, at::empty({7, 130, 9})).equal(a * b)) << b.sizes() << b.strides();
    const at::Tensor permuted = at::empty({9, 7, 130}).permute({1, 2, 0});
    EXPECT_TRUE(run("2 = mul 0 1 ;", {a, b}, permuted).equal(a * b)) << b.sizes() << b.strides();
  }
}

TEST_F(Pointwise, EverySizeIsComputedToItsEnd) {
  for (const int64_t n : {0, 1, 2, 15, 16, 17, 511, 512, 513, 1500, 70'001}) {
    const at::Tensor a = at::randn({n});
    const at::Tensor b = at::randn({n});
    EXPECT_TRUE(run("3 = mul 0 1 ; 2 = add 3 0 0 ;", {a, b}, at::empty({n}), {1.0}).equal(a * b + a)) << n;
  }
  EXPECT_TRUE(run("1 = neg 0 ;", {at::ones({})}, at::empty({})).equal(-at::ones({})));
}

TEST_F(Pointwise, OtherDtypesAreCastWhenTheyAreRead) {
  const at::Tensor a = at::randn({3, 300});
  const at::Tensor large = at::randint(-1'000'000'000, 1'000'000'000, {3, 300}, at::kLong);
  for (const auto dtype :
       {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kDouble, at::kHalf, at::kBFloat16}) {
    const at::Tensor b = (dtype == at::kLong ? large * 1'000'000'001 : large.remainder(100)).to(dtype);
    EXPECT_TRUE(can_read(dtype));
    EXPECT_TRUE(run("2 = mul 0 1 ;", {a, b}, at::empty({3, 300})).equal(a * b.to(at::kFloat))) << dtype;
    const at::Tensor column = b.slice(1, 7, 8);
    EXPECT_TRUE(run("2 = mul 0 1 ;", {a, column}, at::empty({3, 300})).equal(a * column.to(at::kFloat))) << dtype;
  }
  EXPECT_FALSE(can_read(at::kComplexFloat));
  const at::Tensor bytes = at::arange(600, at::kInt).remainder(5).to(at::kByte);
  const at::Tensor odd = bytes.view(at::kBool); // booleans that are not 0 or 1
  EXPECT_TRUE(run("1 = copy 0 ;", {odd}, at::empty({600})).equal(bytes.ne(0).to(at::kFloat)));
}

TEST_F(Pointwise, EveryNarrowFloatIsReadAndWritten) {
  const at::Tensor all = at::arange(1 << 16, at::kInt).to(at::kShort);
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    const at::Tensor numbers = all.view(dtype);
    const at::Tensor wide = run("1 = copy 0 ;", {numbers}, at::empty(numbers.sizes()));
    EXPECT_TRUE(at::allclose(wide, numbers.to(at::kFloat), 0, 0, /*equal_nan=*/true)) << dtype;
    EXPECT_TRUE(
        wide.signbit().logical_or(wide.isnan()).equal(numbers.to(at::kFloat).signbit().logical_or(wide.isnan())));
    for (const int64_t n : {1, 15, 17, 1000, 1 << 16}) {
      const at::Tensor part = numbers.narrow(0, 0, n);
      const at::Tensor copy = run("1 = copy 0 ;", {part}, at::empty({n}, dtype), {}, "f32");
      const at::Tensor is_same = copy.view(at::kShort).eq(part.view(at::kShort));
      EXPECT_TRUE(
          (dtype == at::kBFloat16 ? is_same : at::where(part.isnan(), copy.isnan(), is_same)).all().item<bool>())
          << dtype << n;
    }
    EXPECT_TRUE(run("1 = copy 0 ;", {numbers.slice(0, 0, 400)}, at::empty({400}, at::kDouble))
                    .equal(numbers.slice(0, 0, 400).to(at::kDouble)));
  }
}

TEST_F(Pointwise, IntegersWrapAround) {
  const at::Tensor a = at::arange(-500, 500, at::kInt);
  const at::Tensor bytes = run("2 = mul 0 1 ;", {a, a.to(at::kLong)}, at::empty({1000}, at::kByte));
  EXPECT_TRUE(bytes.equal((a * a).to(at::kByte)));
  const at::Tensor large = run("1 = mul_number 0 0 ;", {a}, at::empty({1000}, at::kLong), {number_of_bits(INT64_MAX)});
  EXPECT_TRUE(large.equal(a.to(at::kLong) * INT64_MAX));
  EXPECT_TRUE(run("2 = lt 0 1 ;", {a, a.flip(0)}, at::empty({1000}, at::kBool), {}, "i32").equal(a.lt(a.flip(0))));
}

TEST_F(Pointwise, MasksAreComparisonsAndChoices) {
  const double inf = std::numeric_limits<double>::infinity();
  const at::Tensor some = at::tensor({0.0, -0.0, inf, -inf, double(NAN), 1e-42, 1.0, -1.0}, at::kFloat);
  const at::Tensor a = some.repeat_interleave(8);
  const at::Tensor b = some.repeat({8});
  const auto compare = [&](const char* name) {
    return run(std::string("2 = ") + name + " 0 1 ;", {a, b}, at::empty({64}, at::kBool));
  };
  EXPECT_TRUE(compare("eq").equal(a.eq(b)));
  EXPECT_TRUE(compare("ne").equal(a.ne(b)));
  EXPECT_TRUE(compare("lt").equal(a.lt(b)));
  EXPECT_TRUE(compare("le").equal(a.le(b)));
  EXPECT_TRUE(compare("gt").equal(a.gt(b)));
  EXPECT_TRUE(compare("ge").equal(a.ge(b)));
  const at::Tensor chosen = run("4 = lt 0 1 ; 3 = where 4 0 2 ;", {a, b, at::ones({})}, at::empty({64}));
  EXPECT_TRUE(chosen.view(at::kInt).equal(at::where(a.lt(b), a, at::ones({})).view(at::kInt)));
}

TEST_F(Pointwise, AnOutputMayBeAnInput) {
  const at::Tensor a = at::randn({100, 100});
  const at::Tensor b = at::randn({100});
  const at::Tensor expected = a * b + b;
  EXPECT_TRUE(run("3 = mul 0 1 ; 2 = add 3 1 0 ;", {a, b}, a, {1.0}).equal(expected));
}

TEST_F(Pointwise, DoublesAreComputedAsDoubles) {
  const at::Tensor a = at::randn({40, 50}, at::kDouble);
  const at::Tensor b = at::randn({50});
  EXPECT_TRUE(run("2 = div 0 1 ;", {a, b}, at::empty({40, 50}, at::kDouble)).equal(a / b));
}

TEST_F(Pointwise, OneInstructionTakesManyElementsAtOnce) {
  const at::Tensor a = at::randn({2'200, 1'001});
  EXPECT_TRUE(run("1 = mul_number 0 0 ;", {a}, at::empty({2'200, 1'001}), {3.0}).equal(a * 3));
  const at::Tensor softmaxes = run("1 = softmax 0 ;", {a}, at::empty({2'200, 1'001}));
  for (const int64_t row : {0, 1, 1'046, 1'047, 2'199}) { // 1,047 rows are as many as fit into 2^20 elements
    const at::Tensor one = a.narrow(0, row, 1).contiguous();
    EXPECT_TRUE(softmaxes.narrow(0, row, 1).equal(run("1 = softmax 0 ;", {one}, at::empty({1, 1'001})))) << row;
  }
  EXPECT_TRUE(softmaxes.sum(-1).allclose(at::ones({2'200})));
}

// ---- rows ----

TEST_F(Pointwise, SumsAndMeansOfRowsHaveTheCpusBits) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t n : {16, 17, 31, 64, 65, 100, 127, 128, 256, 511, 512, 513, 593}) {
      for (const int64_t rows : {1, 2, 3, 70}) {
        const at::Tensor a = at::randn({rows, n}, dtype).exp();
        const at::Tensor out = at::empty({rows, n}, dtype);
        EXPECT_TRUE(
            same_bits(run("2 = row_sum 0 ; 1 = spread 2 ;", {a}, out), a.sum(-1, true).expand_as(a).contiguous()))
            << n << " " << rows;
        EXPECT_TRUE(
            same_bits(run("2 = row_mean 0 ; 1 = spread 2 ;", {a}, out), a.mean(-1, true).expand_as(a).contiguous()))
            << n << " " << rows;
      }
    }
  }
}

TEST_F(Pointwise, WhatIsForRowsIsComputedOnceForEach) {
  const at::Tensor a = at::randn({40, 5, 512});
  const at::Tensor weight = at::randn({512});
  const at::Tensor out = at::empty({40, 5, 512});
  const at::Tensor expected = a * (a.pow(2).mean(-1, true) + 0.5).rsqrt() * weight;
  run("3 = square 0 ; 3 = row_mean 3 ; 4 = row:number 0 ; 3 = row:add 3 4 1 ; 3 = row:rsqrt 3 ; 4 = spread 3 ;"
      " 2 = mul 0 4 ; 2 = mul 2 1 ;",
      {a, weight},
      out,
      {0.5, 1.0});
  EXPECT_TRUE(same_bits(out, expected));
}

TEST_F(Pointwise, ARowThatIsTooLongForATileIsRefused) {
  const at::Tensor rows = at::randn({2, 5'000});
  const char* program = "2 = square 0 ; 3 = exp 0 ; 2 = add 2 3 0 ; 3 = row_sum 3 ; 3 = spread 3 ; 1 = mul 2 3 ;";
  EXPECT_NO_THROW(run(program, {rows}, at::empty_like(rows), {1.0}));
  const at::Tensor longer = at::randn({2, 50'000});
  EXPECT_THROW(run(program, {longer}, at::empty_like(longer), {1.0}), c10::Error);
}

TEST_F(Pointwise, OutputsMayBeOneElementForEachRow) {
  const at::Tensor a = at::randn({33, 128});
  const at::Tensor sums = at::empty({33, 1});
  const at::Tensor are_positive = at::empty({33, 1}, at::kBool);
  const auto program = parse("f32 memory 3 slots 5 numbers 0 1 = row_sum 0 ; 3 = row:zero ; 2 = row:gt 1 3 ;");
  const PointwiseSpace space(a.sizes(), a.strides(), std::vector<PointwiseSpace::Input>{{0, {128, 1}}});
  const std::vector<Memory> memory{
      {a.data_ptr(), at::kFloat},
      {sums.data_ptr(), at::kFloat},
      {are_positive.data_ptr(), at::kBool}};
  kernels::run(*program, space, memory, nullptr);
  EXPECT_TRUE(same_bits(sums, a.sum(-1, true)));
  EXPECT_TRUE(at::equal(are_positive, a.sum(-1, true) > 0));
}

// Of all elements of what a program makes of one tensor: slot 1 is added up, slot 2 divided as well. Whatever tiles
// are.
void expect_totals(const std::string& instructions, const at::Tensor& a, const at::Tensor& made) {
  const std::string dtype = a.scalar_type() == at::kFloat ? "f32" : "f64";
  const auto program = parse(dtype + " memory 3 slots 4 numbers 0 " + instructions);
  const at::Tensor sum = at::empty({}, a.options());
  const at::Tensor mean = at::empty({}, a.options());
  const PointwiseSpace space(a.sizes(), a.strides(), std::vector<PointwiseSpace::Input>{{0, {1}}});
  const std::vector<Memory> memory{
      {a.data_ptr(), a.scalar_type()},
      {sum.data_ptr(), a.scalar_type(), Total::kSum},
      {mean.data_ptr(), a.scalar_type(), Total::kMean}};
  ASSERT_TRUE(can_total(a.scalar_type(), a.numel()));
  kernels::run(*program, space, memory, nullptr, assemble(*program).get());
  EXPECT_TRUE(same_bits(sum, made.sum())) << instructions << a.numel();
  EXPECT_TRUE(same_bits(mean, made.mean())) << instructions << a.numel();
}

TEST_F(Pointwise, TotalsHaveTheCpusBits) {
  const int num_threads = at::get_num_threads();
  at::set_num_threads(1);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t n : {8, 9, 31, 32, 33, 100, 127, 511, 512, 513, 1'000, 4'097, 16'384, 70'001, 1'000'003}) {
      const at::Tensor a = at::randn({n}, dtype).exp();
      expect_totals("1 = square 0 ; 2 = copy 1 ;", a, a * a);
      if (n <= 512) {
        expect_totals("3 = row_sum 0 ; 1 = spread 3 ; 2 = copy 1 ;", a, a.sum(-1, true).expand_as(a).contiguous());
      }
    }
  }
  // PyTorch's partial sums are of 16 terms, up to there.
  constexpr int64_t kMost = RunningSum<double>::kEndElements - 1;
  const at::Tensor most = at::randn({kMost}, at::kDouble);
  expect_totals("1 = square 0 ; 2 = copy 1 ;", most, most * most);
  EXPECT_FALSE(can_total(at::kDouble, kMost + 1));
  at::set_num_threads(num_threads);
}

// Of rows: what stands beside the columns of an input's window may be anything.
TEST_F(Pointwise, InputsMayBeOfSomeColumns) {
  for (const int64_t n : {96, 100}) {
    for (const int64_t begin : {1, 30, 64, 95}) {
      const auto shape = [&](int64_t size) { return std::vector<int64_t>{3, 4, size}; };
      const int64_t rest = n - begin;
      for (const at::Tensor& right :
           {at::randn(shape(rest)),
            at::randn(shape(200)).slice(2, 5, 5 + rest),
            at::randn({4, 3, rest}).transpose(0, 1),
            at::randn({3, rest, 4}).transpose(1, 2),
            at::randn({3, 1, rest}),
            at::randn({1}),
            at::randn(shape(rest)).to(at::kBFloat16),
            at::randn(shape(rest)).gt(0)}) {
        const at::Tensor left = at::randn(shape(begin));
        const at::Tensor factor = at::randn(shape(n));
        const auto program = parse("f32 memory 4 slots 6 numbers 1 4 = neg 1 ; 5 = join 0 4 0 ; 3 = mul 5 2 ;");
        std::vector<PointwiseSpace::Input> places;
        std::vector<Memory> memory;
        for (const auto& [tensor, window] :
             {std::pair(left, Window{0, begin}), std::pair(right, Window{begin, n}), std::pair(factor, Window{})}) {
          const at::Tensor expanded = tensor.expand(shape(window.is_all() ? n : window.size()));
          places.push_back({tensor.storage_offset(), c10::DimVector(expanded.strides()), window});
          memory.push_back({const_cast<void*>(tensor.storage().data()), tensor.scalar_type()});
        }
        const at::Tensor out = at::empty(shape(n));
        memory.push_back({out.data_ptr(), at::kFloat});
        const PointwiseSpace space(out.sizes(), out.strides(), places);
        const auto column = static_cast<double>(begin);
        const at::Tensor expected = at::cat({left, -right.expand(shape(rest)).to(at::kFloat)}, -1) * factor;
        kernels::run(*program, space, memory, &column);
        EXPECT_TRUE(out.equal(expected)) << n << " " << begin << right.sizes();
        const auto assembly = assemble(*program);
        out.zero_();
        kernels::run(*program, space, memory, &column, assembly.get());
        EXPECT_TRUE(out.equal(expected)) << n << " " << begin << right.sizes() << ", assembled";
      }
    }
  }
}

} // namespace
} // namespace lazyplug::kernels
