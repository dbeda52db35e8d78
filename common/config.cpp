#include "common/config.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "common/schedule.h"

namespace lazyplug {
namespace {

#ifdef NDEBUG
constexpr bool kDebugBuild = false;
#else
constexpr bool kDebugBuild = true;
#endif

// c10::DeviceIndex is a signed byte.
constexpr int64_t kMaxDevices = std::numeric_limits<int8_t>::max();

Validator<int64_t> between(int64_t low, int64_t high) {
  return [=](const int64_t& value) -> std::optional<std::string> {
    if (low <= value && value <= high) {
      return std::nullopt;
    }
    return c10::str("must be between ", low, " and ", high);
  };
}

Validator<int64_t> positive() {
  return [](const int64_t& value) -> std::optional<std::string> {
    return value > 0 ? std::nullopt : std::make_optional<std::string>("must be at least 1");
  };
}

Validator<std::string> one_of(std::vector<std::string> allowed) {
  return [allowed = std::move(allowed)](const std::string& value) -> std::optional<std::string> {
    if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) {
      return std::nullopt;
    }
    return c10::str("must be one of ", c10::Join(", ", allowed));
  };
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

// parse_value: the value that the text spells; raises ValueError naming `source` if it spells none.
void parse_value(std::string_view text, std::string_view source, bool& value) {
  const std::string word = lower(text);
  value = word == "1" || word == "true" || word == "on" || word == "yes";
  TORCH_CHECK_VALUE(
      value || word == "0" || word == "false" || word == "off" || word == "no",
      source,
      " is '",
      text,
      "' but must be a boolean: 1, true, on, yes or 0, false, off, no");
}

void parse_value(std::string_view text, std::string_view source, int64_t& value) {
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  TORCH_CHECK_VALUE(
      parsed.ec == std::errc() && parsed.ptr == end,
      source,
      " is '",
      text,
      "' but must be a 64-bit integer");
}

void parse_value(std::string_view text, std::string_view /*source*/, std::string& value) {
  value = text;
}

std::string to_text(bool value) {
  return value ? "true" : "false";
}

std::string to_text(int64_t value) {
  return std::to_string(value);
}

std::string to_text(std::string value) {
  return value;
}

} // namespace

void FlagBase::load_env() {
  for (const std::string& variable : env()) {
    const char* text = std::getenv(variable.c_str());
    if (text != nullptr && *text != '\0') {
      assign(text, "environment variable " + variable);
      return;
    }
  }
}

template <typename T>
Flag<T>::Flag(FlagInfo info, T default_value, Validator<T> validator)
    : FlagBase(std::move(info)), validator_(std::move(validator)), storage_(std::move(default_value)) {
  load_env();
}

template <typename T>
std::string Flag<T>::get_string() const {
  return to_text(get());
}

template <typename T>
void Flag<T>::assign(std::string_view text, std::string_view source) {
  T value{};
  parse_value(text, source, value);
  store(std::move(value), source);
}

template <typename T>
void Flag<T>::store(T value, std::string_view source) {
  const auto problem = validator_ ? validator_(value) : std::nullopt;
  TORCH_CHECK_VALUE(!problem, source, " is '", to_text(value), "' but ", problem.value_or(""));
  storage_.store(std::move(value));
  bump_version();
}

template class Flag<bool>;
template class Flag<int64_t>;
template class Flag<std::string>;

Config::Config()
    : device_count(
          {"device_count", "How many lazy devices there are.", {"LAZYPLUG_DEVICE_COUNT"}},
          1,
          between(1, kMaxDevices)),
      cache_size({"cache_size", "How many compiled computations are kept.", {"LAZYPLUG_CACHE_SIZE"}}, 1024, positive()),
      signature_cache_size(
          {"signature_cache_size",
           "How many op signatures keep their output geometry.",
           {"LAZYPLUG_SIGNATURE_CACHE_SIZE"}},
          65536,
          positive()),
      device_data_cache_size(
          {"device_data_cache_size",
           "How many numbers each device keeps, so that one that is used again is not copied again; 0: none.",
           {"LAZYPLUG_DEVICE_DATA_CACHE_SIZE"}},
          1024,
          between(0, 1'000'000)),
      force_fallback(
          {"force_fallback",
           "Ops that always run on the CPU, separated by commas, for example 'aten::relu,aten::add.Tensor'.",
           {"LAZYPLUG_FORCE_FALLBACK", "LTC_FORCE_FALLBACK"}},
          ""),
      fallback(
          {"fallback",
           "What happens when an op cannot be recorded and runs on the CPU: silent, warn or error.",
           {"LAZYPLUG_FALLBACK"}},
          "warn",
          one_of({"silent", "warn", "error"})),
      debug({"debug", "Keep what debug dumps need: Python frames and graph texts.", {"LAZYPLUG_DEBUG"}}, false),
      verify_ir({"verify_ir", "Check every graph before it is lowered.", {"LAZYPLUG_VERIFY_IR"}}, kDebugBuild),
      verify_torchscript(
          {"verify_torchscript",
           "Run every graph on TorchScript's own interpreter, too, read back from its text, and compare the results.",
           {"LAZYPLUG_VERIFY_TORCHSCRIPT"}},
          false),
      disabled_passes(
          {"disabled_passes",
           "Passes over graphs that are left out, separated by commas, such as dead_code,identities.",
           {"LAZYPLUG_DISABLED_PASSES"}},
          ""),
      fusion(
          {"fusion",
           "Which pointwise ops share a kernel. 0: none, each op runs by PyTorch's own. 1: those that round as "
           "PyTorch's "
           "do. 2: these also where they stand alone, which tests it. 3: functions such as exp, too, alone or not, and "
           "small calls that stand alone.",
           {"LAZYPLUG_FUSION"}},
          3,
          between(0, 3)),
      assemble_after(
          {"assemble_after",
           "After how many runs chains of cheap ops that share a kernel have machine code of their own; -1: never.",
           {"LAZYPLUG_ASSEMBLE_AFTER"}},
          3,
          between(-1, std::numeric_limits<int32_t>::max())),
      side_calls(
          {"side_calls",
           "Products and convolutions that are estimated to take so many microseconds may run beside what does not "
           "need "
           "them, on a thread of the device that would wait otherwise; -1: none.",
           {"LAZYPLUG_SIDE_CALLS"}},
          100,
          between(-1, std::numeric_limits<int32_t>::max())),
      perf_map(
          {"perf_map",
           "Name such machine code in /tmp/perf-<process>.map, where perf looks for it.",
           {"LAZYPLUG_PERF_MAP"}},
          false),
      dump_dir(
          {"dump_dir",
           "A folder for the text of each graph that is compiled: as recorded, and after each pass that changed it.",
           {"LAZYPLUG_DUMP_DIR"}},
          ""),
      launch_blocking(
          {"launch_blocking", "Run each op when it is recorded and wait for it.", {"LAZYPLUG_LAUNCH_BLOCKING"}},
          false),
      sync_debug(
          {"sync_debug",
           "What happens when the program reads results and so waits for the device: default (nothing), warn or error.",
           {"LAZYPLUG_SYNC_DEBUG"}},
          "default",
          one_of({"default", "warn", "error"})),
      reuse_ir(
          {"reuse_ir",
           "Predict each call from the last time that the program came by, instead of looking it up.",
           {"LAZYPLUG_REUSE_IR"}},
          true),
      backward_pass(
          {"backward_pass",
           "Run the nodes of a backward pass that starts on the device as one node of autograd's engine, unless hooks, "
           "Python or other streams take part in it.",
           {"LAZYPLUG_BACKWARD_PASS"}},
          true),
      small_call(
          {"small_call",
           "The layouts of results are the CPU kernel's own answer, on zeros, for calls of fewer elements than this; "
           "those "
           "of others are worked out. 0: all are, which tests it.",
           {"LAZYPLUG_SMALL_CALL"}},
          8192,
          between(0, int64_t{1} << 20)),
      symbolic_shape_mode(
          {"symbolic_shape_mode",
           "Expect sizes to change from step to step: max_size_variants is then 2, if it is not less.",
           {"LAZYPLUG_SYMBOLIC_SHAPE_MODE", "LTC_ENABLE_SYMBOLIC_SHAPES"}},
          false),
      max_size_variants(
          {"max_size_variants",
           "How many graphs in a row may differ in sizes only, before calls with new sizes run at once, without being "
           "compiled; 0: any number.",
           {"LAZYPLUG_MAX_SIZE_VARIANTS"}},
          8,
          between(0, 100)),
      max_unused_graphs(
          {"max_unused_graphs",
           "If most of so many graphs in a row have run only once, such calls run at once until the program repeats "
           "itself; 0: never.",
           {"LAZYPLUG_MAX_UNUSED_GRAPHS"}},
          32,
          between(0, 1000)),
      run_at_once(
          {"run_at_once",
           "Whether calls that could be recorded run at once instead: never, always, or auto, which is where a program "
           "reads a result every few ops and was faster so when that was tried.",
           {"LAZYPLUG_RUN_AT_ONCE"}},
          "auto",
          one_of({"auto", "always", "never"})),
      compile(
          {"compile",
           "When a graph that is not in the cache is compiled: always, as soon as it comes; never, it is run call by "
           "call; or auto, which is always for the first steps, and then when it has come some hundred times.",
           {"LAZYPLUG_COMPILE"}},
          "auto",
          one_of({"auto", "always", "never"})),
      min_cut_nodes(
          {"min_cut_nodes",
           "From how many recorded nodes on a trace may be run where it has been cut before.",
           {"LAZYPLUG_MIN_CUT_NODES"}},
          300,
          positive()),
      max_pending_nodes(
          {"max_pending_nodes",
           "How many nodes may be pending before the trace is cut.",
           {"LAZYPLUG_MAX_PENDING_NODES"}},
          3000,
          positive()),
      overlap(
          {"overlap",
           "Whether a worker computes while the program records: always, never, or auto, which is where processors are "
           "left over for it.",
           {"LAZYPLUG_OVERLAP"}},
          "auto",
          one_of({"auto", "always", "never"})),
      chunk_nodes(
          {"chunk_nodes",
           "How many ops a piece of a step has at least; 0: steps that come again are cut as their timing suggests, "
           "or not at all. For tests.",
           {"LAZYPLUG_CHUNK_NODES"}},
          0,
          between(0, std::numeric_limits<int64_t>::max())),
      max_pending_bytes(
          {"max_pending_bytes",
           "How many bytes of results may be pending before the trace is cut.",
           {"LAZYPLUG_MAX_PENDING_BYTES"}},
          int64_t{1} << 30,
          positive()),
      closure_exit_timeout(
          {"closure_exit_timeout",
           "How many seconds the interpreter, when it exits, waits for one asynchronous step closure.",
           {"LAZYPLUG_CLOSURE_EXIT_TIMEOUT"}},
          20,
          positive()),
      memory_cache(
          {"memory_cache",
           "Keep freed device memory for the next tensors; otherwise it comes from the CPU allocator, uncounted.",
           {"LAZYPLUG_MEMORY_CACHE"}},
          true),
      schedule(
          {"schedule",
           "For tests: where traces are cut, instead of where it pays: never (only by reads), every:<n> ops, or "
           "random:<seed>. With the last two, workers are late at random.",
           {"LAZYPLUG_SCHEDULE"}},
          "",
          [](const std::string& value) -> std::optional<std::string> {
            return Schedule::parse(value)
                       ? std::nullopt
                       : std::make_optional<std::string>("must be never, every:<n> or random:<seed>");
          }),
      scramble(
          {"scramble",
           "For tests: a seed that chooses half of the kernels' results, which then come with other strides; 0: none.",
           {"LAZYPLUG_SCRAMBLE"}},
          0,
          between(0, std::numeric_limits<int64_t>::max())),
      log_level(
          {"log_level",
           "The least severe messages that are written: debug, info, warning, error or off.",
           {"LAZYPLUG_LOG_LEVEL"}},
          "warning",
          one_of({"debug", "info", "warning", "error", "off"})) {}

std::vector<FlagBase*> Config::flags() {
  return {
      &device_count,
      &cache_size,
      &signature_cache_size,
      &device_data_cache_size,
      &force_fallback,
      &fallback,
      &debug,
      &verify_ir,
      &verify_torchscript,
      &disabled_passes,
      &fusion,
      &assemble_after,
      &side_calls,
      &perf_map,
      &dump_dir,
      &launch_blocking,
      &sync_debug,
      &reuse_ir,
      &backward_pass,
      &small_call,
      &symbolic_shape_mode,
      &max_size_variants,
      &max_unused_graphs,
      &run_at_once,
      &compile,
      &min_cut_nodes,
      &max_pending_nodes,
      &overlap,
      &chunk_nodes,
      &max_pending_bytes,
      &closure_exit_timeout,
      &memory_cache,
      &schedule,
      &scramble,
      &log_level};
}

FlagBase& Config::flag(std::string_view name) {
  for (FlagBase* candidate : flags()) {
    if (candidate->name() == name) {
      return *candidate;
    }
  }
  TORCH_CHECK_VALUE(false, "torch_lazyplug has no flag '", name, "'");
}

} // namespace lazyplug
