#include "transport/grpc/grpc_transport.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/strings.h"

namespace staffel {

void GrpcTransport::SetOutcomeHandler(std::function<void(StepOutcome)> handler) {
  std::lock_guard lock(mutex_);
  handler_ = std::move(handler);
}

Status GrpcTransport::Submit(StepPlan plan) {
  std::lock_guard order(submit_mutex_);
  std::shared_ptr<const std::vector<WorkerId>> workers;
  {
    std::lock_guard lock(mutex_);
    STAFFEL_CHECK(handler_ != nullptr) << "set the outcome handler before the first plan";
    if (workers_ == nullptr) {
      return absl::UnavailableError("no workers hold the model at the moment");
    }
    if (plan.epoch != epoch_) {
      return absl::UnavailableError(
          StrCat("a plan of epoch ", plan.epoch, " cannot be sent in epoch ", epoch_));
    }
    if (failed_step_ != 0) return failure_.status;
    in_flight_.push_back(plan.step);
    workers = workers_;
  }
  // Outcomes need not wait for it. If the epoch ends meanwhile, its workers ignore the plan.
  server_->SendToAll(*workers, Step{replica_, std::move(plan)});
  return absl::OkStatus();
}

void GrpcTransport::Bind(int epoch, std::vector<WorkerId> workers, int sampling_rank) {
  STAFFEL_CHECK(sampling_rank >= 0 && sampling_rank < static_cast<int>(workers.size()));
  std::lock_guard lock(mutex_);
  epoch_ = epoch;
  sampler_ = workers[sampling_rank];
  workers_ = std::make_shared<const std::vector<WorkerId>>(std::move(workers));
  in_flight_.clear();
  finished_.clear();
  failed_step_ = 0;
}

void GrpcTransport::Unbind() {
  std::lock_guard lock(mutex_);
  workers_ = nullptr;
  in_flight_.clear();
  finished_.clear();
}

void GrpcTransport::OnOutcome(WorkerId worker, StepOutcome outcome) {
  // The handler is called under the lock: in order, whichever threads report.
  std::lock_guard lock(mutex_);
  if (workers_ == nullptr || outcome.epoch != epoch_ ||
      std::find(workers_->begin(), workers_->end(), worker) == workers_->end()) {
    return;
  }
  if (!outcome.status.ok()) {
    if (failed_step_ == 0 || outcome.step < failed_step_) {
      failed_step_ = outcome.step;
      failure_ = std::move(outcome);
    }
  } else if (worker == sampler_ &&
             std::find(in_flight_.begin(), in_flight_.end(), outcome.step) != in_flight_.end()) {
    finished_[outcome.step] = std::move(outcome);
  }
  while (!in_flight_.empty()) {
    const uint64_t step = in_flight_.front();
    const auto it = finished_.find(step);
    if (failed_step_ != 0 && failed_step_ <= step) {
      in_flight_.pop_front();
      StepOutcome failed = failure_;
      failed.step = step;
      handler_(std::move(failed));
    } else if (it != finished_.end()) {
      in_flight_.pop_front();
      StepOutcome finished = std::move(it->second);
      finished_.erase(it);
      handler_(std::move(finished));
    } else {
      return;
    }
  }
}

}  // namespace staffel
