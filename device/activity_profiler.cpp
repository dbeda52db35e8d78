#include "device/activity_profiler.h"

// PyTorch's libraries are built so; its headers hide the interface otherwise.
#define USE_KINETO
#define FMT_HEADER_ONLY 1
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "common/fork_safe_mutex.h"

namespace lazyplug {
namespace {

using libkineto::ActivityType;

struct ThreadKernels {
  c10::DeviceIndex device;
  int32_t thread;
  std::vector<ProfiledKernel> kernels;
};

// What has run since the profile began.
class Profile {
 public:
  void start() {
    const std::lock_guard lock(mutex_);
    runs_.clear();
    is_taken_.store(true, std::memory_order_relaxed);
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    is_taken_.store(false, std::memory_order_relaxed);
  }
  bool is_taken() const {
    return is_taken_.load(std::memory_order_relaxed);
  }
  void add(ThreadKernels run) {
    const std::lock_guard lock(mutex_);
    if (is_taken()) {
      runs_.push_back(std::move(run));
    }
  }
  std::vector<ThreadKernels> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(runs_, {});
  }

 private:
  std::atomic<bool> is_taken_ = false;
  ForkSafeMutex mutex_;
  std::vector<ThreadKernels> runs_;
};

Profile& profile() {
  static auto& profile = *new Profile(); // workers may outlive static objects
  return profile;
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  void start() override {
    profile().start();
    status_ = libkineto::TraceStatus::RECORDING;
  }

  void stop() override {
    profile().stop();
    status_ = libkineto::TraceStatus::PROCESSING;
  }

  std::vector<std::string> errors() override {
    return {};
  }

  void processTrace(libkineto::ActivityLogger& logger) override {
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span.name = "Lazy kernels";
    for (const ThreadKernels& run : profile().take()) {
      threads_[run.thread] = run.device;
      for (const ProfiledKernel& kernel : run.kernels) {
        add(run, kernel);
      }
    }
    buffer_->gpuOpCount = static_cast<int>(buffer_->activities.size());
    for (const auto& activity : buffer_->activities) {
      logger.handleGenericActivity(*activity);
    }
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return std::make_unique<libkineto::DeviceInfo>(libkineto::DeviceInfo{0, 0, "lazy", "lazy"});
  }

  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> rows;
    for (const auto& [thread, device] : threads_) {
      rows.push_back({thread, thread, device, "kernels in thread " + std::to_string(thread)});
    }
    return rows;
  }

  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }

 private:
  void add(const ThreadKernels& run, const ProfiledKernel& kernel) {
    buffer_->emplace_activity(buffer_->span, ActivityType::CONCURRENT_KERNEL, kernel.name);
    libkineto::GenericTraceActivity& activity = *buffer_->activities.back();
    activity.startTime = kernel.start_ns;
    activity.endTime = kernel.start_ns + kernel.duration_ns;
    activity.device = run.device;
    activity.resource = run.thread;
    activity.threadId = run.thread;
  }

  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
  std::map<int32_t, c10::DeviceIndex> threads_;
};

class ActivityProfiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    static const std::string name = "lazy";
    return name;
  }

  const std::set<ActivityType>& availableActivities() const override {
    static const std::set<ActivityType> activities = {ActivityType::CONCURRENT_KERNEL};
    return activities;
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& activities,
      const libkineto::Config& /*config*/) override {
    return activities.count(ActivityType::CONCURRENT_KERNEL) == 0 ? nullptr : std::make_unique<Session>();
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t /*start_ms*/,
      int64_t /*duration_ms*/,
      const std::set<ActivityType>& activities,
      const libkineto::Config& config) override {
    return configure(activities, config);
  }
};

REGISTER_PRIVATEUSE1_PROFILER(ActivityProfiler);

} // namespace

bool is_profiling() {
  return profile().is_taken();
}

void add_profiled_kernels(c10::DeviceIndex device, std::vector<ProfiledKernel> kernels) {
  profile().add({device, static_cast<int32_t>(gettid()), std::move(kernels)});
}

} // namespace lazyplug
