#pragma once

#include <cstddef>
#include <cstdint>

#include "base/time.h"

/// Every bound of the engine and its doors in one place. Loops, queues, batches and retries end here.
namespace gpusched::limits {

// Requests.
inline constexpr uint32_t kBatchJobsMax = 1'000;  ///< Jobs in one submission.
inline constexpr uint32_t kNameBytesMax = 253;    ///< Names of jobs, tenants and nodes.
inline constexpr uint32_t kRequestKeyBytesMax = 128;
inline constexpr uint32_t kCommandWordsMax = 4'096;  ///< `command` and `args` together.
inline constexpr uint32_t kEnvironmentCountMax = 1'024;
inline constexpr uint32_t kLabelCountMax = 64;
inline constexpr uint32_t kLabelBytesMax = 253;
inline constexpr uint32_t kReasonBytesMax = 1'024;    ///< A sentence that an operator or an agent gives.
inline constexpr uint32_t kSpecBytesMax = 1'048'576;  ///< A job's packed specification.
inline constexpr int32_t kPriorityMax = 1'000'000;    ///< The absolute value.
inline constexpr int32_t kGpusPerJobMax = 100'000;
inline constexpr int64_t kMegabytesMax = int64_t{1} << 40;  ///< Memory in one request or quota.
inline constexpr int32_t kCpuCoresMax = 1'000'000;
inline constexpr Duration kRuntimeMax = hours(24 * 366);
inline constexpr int32_t kRetriesMax = 1'000;
inline constexpr uint32_t kDependenciesMax = 64;         ///< Number for one job.
inline constexpr int64_t kArrayElementsMax = 1'000'000;  ///< Total over the arrays of one submission.
inline constexpr int64_t kArrayIndexMax = 4'000'000;
inline constexpr uint32_t kArrayRangesMax = 1'024;  ///< "1,3,7-9" has three.
inline constexpr int64_t kArrayAhead = 256;         ///< Maximum elements of an array in the queue.
inline constexpr Duration kBeginMax =
    hours(24 * 366);  ///< Maximum distance of a job's begin, and of its deadline, from now.

// State.
inline constexpr int32_t kMembersMax = 16'384;      ///< Total over the parts of one job.
inline constexpr std::size_t kPartsMax = 16;        ///< Number for one job.
inline constexpr uint32_t kDevicesPerNodeMax = 64;  ///< A node's bitmap is one 64-bit word.
/// After so long without a device its slot is another one's that the node brings; before that only where no
/// slot is left.
inline constexpr Duration kMissingDeviceKept = hours(24 * 7);
inline constexpr uint32_t kNodeFeaturesMax = 64;
inline constexpr uint32_t kNodeLabelsMax = 64;  ///< From an operator, and as many from the agent.
inline constexpr uint32_t kNodesMax = 200'000;
inline constexpr std::size_t kLabelTermsMax = 32;  ///< Labels that a job requires of its node, or forbids.
inline constexpr std::size_t kGpuModelsMax = 16;   ///< Models that a job takes.
inline constexpr int64_t kLinkGbsMax = 1'000'000;  ///< GB/s between two devices.
inline constexpr uint32_t kDeviceClassesMax = 64;  ///< Different (model, memory, MIG mode or not).
inline constexpr std::size_t kMigProfileMax = 32;  ///< Bytes of a MIG profile's name.
inline constexpr uint32_t kAttemptsPerNodeMax = 4'096;  ///< Running on one node at a time.
inline constexpr uint32_t kTenantDepthMax = 8;
inline constexpr uint32_t kTenantsMax = 100'000;
inline constexpr std::size_t kKeysMax = 100'000;
inline constexpr std::size_t kKeysOfOneHomeMax = 1'000;  ///< Keys of one tenant, or of the cluster.
inline constexpr std::size_t kKeyBindingsMax = 32;
inline constexpr std::size_t kKeyUnixUsersMax = 32;
inline constexpr std::size_t kKeyPrefixMin = 8;   ///< Fewest characters of the part of a key that is shown.
inline constexpr std::size_t kKeyPrefixMax = 32;  ///< Most characters of that part.
inline constexpr std::size_t kKeyHashBytes = 32;
inline constexpr Duration kKeysKept = hours(24 * 90);  ///< After a key was revoked or expired.
inline constexpr std::size_t kPeopleMax = 100'000;
inline constexpr std::size_t kPasswordHashBytesMax = 128;
inline constexpr std::size_t kNodeTicketsMax = 10'000;
inline constexpr std::size_t kNodeIdentitiesMax = 100'000;
inline constexpr std::size_t kPublicKeyHashBytes = 32;
inline constexpr Duration kNodeTicketsKept = hours(24);  ///< After a node token expired.
inline constexpr int64_t kWaitingJobsMax = 100'000'000;  ///< Maximum of a tenant's own limit.
inline constexpr Duration kQueueFullRetry = seconds(5);  ///< Retry delay told to clients of a full queue.
inline constexpr uint32_t kSubmittersMax = 20'000;       ///< Users whose spending is remembered.
inline constexpr uint32_t kBookingsMax = 1'000;          ///< Reservations of nodes, planned or on.
inline constexpr uint32_t kBookingUsersMax = 100;
inline constexpr Duration kBookingMax = hours(24 * 366);  ///< Maximum length, and distance of its start.
inline constexpr int64_t kTaskCostMax = 1'000'000;        ///< Tokens that one job may cost.
inline constexpr int64_t kQueueSizeDefault = 1'000'000;   ///< Waiting jobs.
inline constexpr int64_t kFinishedJobsDefault = 1'000'000;
inline constexpr Duration kFinishedJobsKept = hours(24 * 7);
inline constexpr Duration kRequestKeysKept = hours(24);
inline constexpr int64_t kRequestKeysMax = 1'000'000;  ///< Over all tenants; the oldest goes first.

inline constexpr uint32_t kPastNodesMax = 16;  ///< Nodes kept of a job's earlier attempts.

// Times and settings, so that no sum of them overflows.
inline constexpr Time kTimeMax{int64_t{1} << 62};              ///< A time in the year 2116.
inline constexpr Duration kSettingMax = hours(24 * 366 * 50);  ///< Maximum of a configured duration.
inline constexpr int64_t kAgingPerHourMax = 1'000'000;

// Cycles.
inline constexpr uint32_t kPlacementsPerSlice = 256;  ///< Size of one CommitPlan; keeps a slice under 2 ms.
inline constexpr uint64_t kNodeVisitsPerSlice = 60'000;  ///< Nodes looked at in one slice, about 1 ms.
inline constexpr uint32_t kReservationsMax = 64;         ///< Blocked jobs whose start is kept free.
inline constexpr int64_t kInteractiveSecondsMax = 600;   ///< Maximum wait of an interactive job.
inline constexpr std::size_t kAttainedLevelsMax = 16;    ///< Number for the order `least_attained`.
inline constexpr int64_t kAttainedGpuSecondsMax = 1'000'000'000'000;
inline constexpr uint32_t kPassTriesMax = 64;   ///< Jobs behind a blocked one that are tried at a time.
inline constexpr uint32_t kCandidatesMax = 64;  ///< Nodes scored for one placement.
inline constexpr int64_t kFeasibleLooksMax =
    1'000'000;  ///< Nodes examined for the feasibility of one submission.
inline constexpr std::size_t kNearestNodesMax = 2'000;  ///< Among which the one that comes nearest is named.
inline constexpr uint32_t kForgottenPerCommand = 256;   ///< Retention work of one AdvanceTime.

// Retries by cause: 1 s, doubling, at most 5 min, at most so often.
inline constexpr Duration kBackoffFirst = seconds(1);
inline constexpr Duration kBackoffMax = minutes(5);
inline constexpr int32_t kSystemRetriesMax = 16;  ///< Lost node, failed start, lost shim.

/// Most of each amount that an attempt is said to have used, in its own unit: two of them can be added.
inline constexpr int64_t kUsageMax = int64_t{1} << 61;

inline constexpr uint64_t kHistoryEntriesMax = 64;     ///< Entries of a job's timeline; the oldest go first.
inline constexpr std::size_t kHistoryDetailMax = 200;  ///< Bytes of an entry's detail.

/// Failures of the system, the last of them a failed start, after which a job is held: another try seldom
/// helps where there is no user, folder or file of that name.
inline constexpr int32_t kFailedStartsMax = 3;
/// Consecutive attempts that nodes could not even prepare after which a job is held.
inline constexpr int32_t kNodeFaultsMax = 5;

// A node that would not start a job is not chosen for it for 30 s, doubling, at most 5 min.
inline constexpr Duration kAvoidFirst = seconds(30);
inline constexpr Duration kAvoidMax = minutes(5);
inline constexpr std::size_t kAvoidedNodesMax = 64;  ///< Of one job; it forgets the one it may use soonest.

// Nodes that jobs of several tenants fail on are drained.
inline constexpr uint32_t kNodeFailuresKept = 16;
inline constexpr uint32_t kNodeFailuresMin = 4;              ///< Fewer failures are no evidence.
inline constexpr uint32_t kNodeFailureTenantsMin = 2;        ///< Failures of fewer tenants are none either.
inline constexpr Duration kNodeFailureWindow = minutes(10);  ///< Older failures are none either.
// Nodes on which jobs die soon that live elsewhere: the ends that are remembered of each node.
inline constexpr uint32_t kNodeEndsKept = 32;
inline constexpr Duration kNodeEndsWindow = hours(24);
inline constexpr Duration kQuickEnd = seconds(60);  ///< A failure so soon after an attempt's start is quick.
/// Greatest chance of a suspect node's ends, of 2^40; the second one is without its worst tenant's ends.
inline constexpr int64_t kBlackHoleChance = int64_t{1} << 20;
inline constexpr int64_t kBlackHoleChanceOfOthers = int64_t{1} << 30;
inline constexpr int64_t kAutoDrainPercentDefault = 5;  ///< Percentage of all nodes; at least one.

/// Delay after a job's time limit after which the engine acts if its node did not.
inline constexpr Duration kRuntimeSlack = seconds(5);
/// Beyond a job's own limit without contact, until its shim has certainly ended it: grace, drift, polling.
inline constexpr Duration kContactSlack = seconds(60);

// Preemption.
inline constexpr int64_t kPreemptGraceSecondsMax = 600;  ///< Maximum that a job may request.
inline constexpr uint32_t kPreemptUrlBytesMax = 2'048;  ///< Length of a URL that is notified of a preemption.
inline constexpr std::size_t kPromisesMax = 1'024;      ///< Jobs for which others are being ended.
inline constexpr std::size_t kVictimsMax = 64;          ///< Number for one preemption.
inline constexpr std::size_t kMovesMax = 16;            ///< Jobs that are moved so that one can start.
inline constexpr std::size_t kMovableTriedMax = 10;     ///< Jobs of a node of which all subsets are tried.
inline constexpr std::size_t kMoveGainersMax = 64;      ///< Waiting jobs for which moves are looked for.
inline constexpr std::size_t kMoveProposalsMax = 32;    ///< Proposals that are shown, and remembered.
inline constexpr uint64_t kMoveWorkMax = 4'000'000;     ///< Looks at nodes and jobs of one search for moves.
inline constexpr Duration kMoveProposalKept = minutes(15);  ///< Lifetime of a proposal.
inline constexpr Duration kPromiseKept =
    minutes(15);  ///< Then what its victims did not give back is not waited for.

// Forecasts.
inline constexpr uint32_t kForecastRunsMax = 64;         ///< Simulated futures of one forecast.
inline constexpr uint64_t kForecastWorkMax = 2'000'000;  ///< Commands and looks of one such run.
inline constexpr uint32_t kForecastAsksMax = 64;  ///< Changed requests that the planner is asked about.
inline constexpr Duration kForecastHorizon = hours(24 * 366);
inline constexpr std::size_t kForecastQueueMax = 256;  ///< Maximum waiting requests.
// Quotas.
inline constexpr int64_t kOnlinePriority = 1'000;  ///< Priority from which work counts as online by default.
inline constexpr int64_t kGuaranteeMax = int64_t{1} << 50;  ///< Maximum for any resource.
inline constexpr Duration kGpuTimeWindow = hours(24 * 7);
inline constexpr Duration kGpuTimeWindowMin = seconds(60);
inline constexpr Duration kGpuTimeWindowMax = hours(24 * 366);
inline constexpr int64_t kGpuTimeMaxMs = int64_t{1} << 56;  ///< Two million GPU years.

// Fence.
inline constexpr Duration kDrainLimitDefault = seconds(60);  ///< Then the device is quarantined.

// Journal.
inline constexpr uint32_t kGroupCommandsMax = 4'096;
inline constexpr uint32_t kGroupBytesMax = 8u << 20;
/// Payloads that a start has unpacked and not applied; one record more may come.
inline constexpr uint64_t kDecodedAheadBytesMax = 4u << 20;

}  // namespace gpusched::limits
