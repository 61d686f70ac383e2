package bridge

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	v1 "gpusched/kube/api/v1"
	"gpusched/kube/engine"
	"gpusched/kube/engine/pb"
	"gpusched/kube/leases"
)

// MissingClaim is what a pod of this scheduler without a claim is told.
const MissingClaim = "gpu claim annotation missing"

// Brings one pod a step further. Called for one pod by one goroutine at a time.
func (b *Bridge) syncPod(ctx context.Context, ref PodRef) error {
	pod, err := b.podLister.Pods(ref.Namespace).Get(ref.Name)
	if err != nil || pod.UID != ref.UID || over(pod) {
		return b.finish(ctx, ref) // Upstream's cache leaves out pods that have ended.
	}
	if pod.Spec.NodeName != "" {
		return b.syncBound(ctx, pod)
	}
	if trouble := b.Trouble(); trouble != "" {
		return b.tell(ctx, pod, trouble)
	}
	if a := b.attemptOf(ref.UID); a != nil && a.stage == leaving {
		return b.settle(ctx, a)
	}
	if pod.DeletionTimestamp != nil {
		return b.withdraw(ctx, ref, "the pod is being deleted")
	}
	if len(pod.Spec.SchedulingGates) > 0 {
		return nil // It could not be bound: nothing is to be placed for it yet. Its condition says so already.
	}
	if claim := b.claimOf(pod); claim != nil && claim.Spec.GangRef != "" {
		return b.syncMember(ctx, pod, claim)
	}
	request, problem := b.requestOf(pod)
	b.refuse(ref.UID, problem)
	if problem != "" {
		if err := b.withdraw(ctx, ref, problem); err != nil {
			return err
		}
		return b.tell(ctx, pod, problem)
	}
	return b.syncWaiting(ctx, pod, request)
}

// A copy: it may be read without the mutex.
func (b *Bridge) attemptOf(uid types.UID) *attempt {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if a := b.attempts[uid]; a != nil {
		seen := *a
		return &seen
	}
	return nil
}

func (b *Bridge) jobOf(uid types.UID) *job {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if j := b.jobs[uid]; j != nil {
		seen := *j
		return &seen
	}
	return nil
}

func (b *Bridge) refuse(uid types.UID, problem string) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if problem == "" {
		delete(b.refusals, uid)
	} else {
		b.refusals[uid] = problem
	}
}

// The pod's job, or why it cannot have one.
func (b *Bridge) requestOf(pod *corev1.Pod) (*engine.Request, string) {
	if !asks(pod) {
		return nil, MissingClaim
	}
	name := pod.Annotations[v1.AnnotationClaim]
	claim := b.claimOf(pod)
	if claim == nil {
		return nil, fmt.Sprintf("gpu claim %q does not exist in namespace %q", name, pod.Namespace)
	}
	if owner := b.ownerOf(claim); name != "" && owner != nil && owner.UID != pod.UID {
		return nil, fmt.Sprintf("gpu claim %q is used by pod %q: one claim serves one pod at a time", name, owner.Name)
	}
	if problem := unsupported(claim); problem != "" {
		return nil, problem
	}
	request := &engine.Request{Tenant: b.tenantOf(pod.Namespace), Namespace: pod.Namespace, Name: pod.Name,
		UID: string(pod.UID), Devices: claim.Spec.Devices.Count,
		Claim: versionOf(claim), Key: keyOf(pod.UID, versionOf(claim)), Priority: priorityOf(pod)}
	request.DeviceIDs = idsOf(claim)
	if claim.Spec.Devices.Count > 1 { // One device has no layout and no links.
		request.Layout = layoutOf(claim)
		request.BandwidthGBps = bandwidthOf(claim)
	}
	if claim.Spec.Selector != nil {
		request.NodeLabels = sortedLabels(claim.Spec.Selector.MatchLabels)
	}
	return request, ""
}

// A claim as it was written at one time.
func versionOf(claim *v1.GpuClaim) string { return fmt.Sprintf("%s/%d", claim.UID, claim.Generation) }

func keyOf(uid types.UID, version string) string { return string(uid) + "/" + version }

// A claim belongs to its oldest pod that lives.
func (b *Bridge) ownerOf(claim *v1.GpuClaim) *corev1.Pod {
	pods := b.podsOf(claim.Namespace, claim.Name)
	for _, pod := range pods { // A bound pod has it, whatever its age.
		if pod.Spec.NodeName != "" && !over(pod) {
			return pod
		}
	}
	for _, pod := range pods {
		if !over(pod) && pod.DeletionTimestamp == nil {
			return pod
		}
	}
	return nil
}

func (b *Bridge) tenantOf(namespace string) string {
	if object, err := b.namespaces.Get(namespace); err == nil && object.Labels[v1.LabelTenant] != "" {
		return object.Labels[v1.LabelTenant]
	}
	if b.options.Tenant != "" {
		return b.options.Tenant
	}
	return namespace
}

// Waits for the engine's decision, or for upstream's scheduler.
func (b *Bridge) syncWaiting(ctx context.Context, pod *corev1.Pod, request *engine.Request) error {
	ref := refOf(pod)
	a, j := b.attemptOf(ref.UID), b.jobOf(ref.UID)
	if j != nil && j.key != request.Key {
		if err := b.withdraw(ctx, ref, "the claim has changed"); err != nil {
			return err
		}
		if a != nil {
			return nil // It comes again when what was placed is taken back.
		}
		j = nil
	}
	switch {
	case a != nil:
		return b.activate(ctx, pod)
	case j == nil:
		return b.submit(ctx, pod, request)
	case j.ended():
		klog.InfoS("The pod's job was cancelled: evicting the pod", "pod", klog.KObj(pod), "job", j.id)
		return b.evict(ctx, pod)
	case engine.Final(j.state): // Its attempt was lost, or preempted, before the pod was bound.
		b.mutex.Lock()
		b.forget(ref.UID)
		b.mutex.Unlock()
		return b.submit(ctx, pod, request)
	}
	return b.tellOf(ctx, pod, j)
}

func (b *Bridge) submit(ctx context.Context, pod *corev1.Pod, request *engine.Request) error {
	ref := refOf(pod)
	key := request.Key
	b.mutex.Lock()
	request.Key = fmt.Sprintf("%s/%s/%d", key, b.process, b.submissions[ref.UID])
	b.submitting[ref.UID] = nil
	b.mutex.Unlock()
	id, err := b.options.Engine.Submit(ctx, request)
	if engine.Away(err) {
		return err // Not known whether it happened: the same key again.
	}
	if err != nil {
		b.mutex.Lock()
		delete(b.submitting, ref.UID)
		b.mutex.Unlock()
		problem := "the engine refuses the claim: " + engine.Reason(err)
		b.refuse(ref.UID, problem)
		b.podQueue.AddAfter(ref, refusedAgain)
		b.touchClaim(pod)
		return b.tell(ctx, pod, problem)
	}
	b.mutex.Lock()
	b.jobs[ref.UID] = &job{id: id, key: key, pod: ref.UID, state: pb.JobState_JOB_STATE_PENDING,
		message: "waits for the engine's decision"}
	early := b.submitting[ref.UID]
	delete(b.submitting, ref.UID)
	b.mutex.Unlock()
	klog.InfoS("Submitted", "pod", klog.KObj(pod), "job", id)
	for _, one := range early {
		b.Start(one.node, one.order)
	}
	return nil
}

// Puts the pod into the scheduling queue, again and again until upstream takes it, and not for ever.
func (b *Bridge) activate(ctx context.Context, pod *corev1.Pod) error {
	b.mutex.Lock()
	a := b.attempts[pod.UID]
	if a == nil || a.stage != placed {
		b.mutex.Unlock()
		return nil
	}
	if a.held {
		seen := *a
		b.mutex.Unlock()
		return b.syncHeld(ctx, pod, &seen)
	}
	a.tries++
	tries := a.tries
	if tries > activateTries {
		a.stage, a.reason = leaving, "the scheduler of Kubernetes did not take the pod in time"
	}
	b.mutex.Unlock()
	if tries > activateTries {
		b.podQueue.Add(refOf(pod))
		return nil
	}
	b.options.Queue.Activate(klog.FromContext(ctx), map[string]*corev1.Pod{pod.Namespace + "/" + pod.Name: pod})
	b.podQueue.AddAfter(refOf(pod), activateEvery)
	return nil
}

// The next submission of the pod, or of its gang, is another one. With the mutex held.
func (b *Bridge) forget(uid types.UID) {
	j := b.jobs[uid]
	if j != nil && j.gang.UID != "" {
		b.forgetGang(j)
	} else if j != nil {
		delete(b.jobs, uid)
		b.submissions[uid]++
	}
}

// Takes the pod's job back: nothing more is placed for it.
func (b *Bridge) withdraw(ctx context.Context, ref PodRef, reason string) error {
	j := b.jobOf(ref.UID)
	if j != nil && !engine.Final(j.state) {
		if err := b.options.Engine.Cancel(ctx, j.id); err != nil {
			return err
		}
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.forget(ref.UID)
	if a := b.attempts[ref.UID]; a != nil && a.stage < bound {
		b.leave(a, reason)
	}
	return nil
}

// A pod that is on its node: the engine knows, and it ends when the engine says so.
func (b *Bridge) syncBound(ctx context.Context, pod *corev1.Pod) error {
	ref := refOf(pod)
	if !b.isRecovered() {
		return nil // Recovery looks at it.
	}
	b.mutex.Lock()
	a := b.attempts[ref.UID]
	if a == nil || a.Node != pod.Spec.NodeName || (a.stage != bound && !a.isOf(pod)) {
		b.mutex.Unlock()
		return b.leaveElsewhere(ctx, ref)
	}
	if a.stage != bound {
		a.stopping = a.stage == leaving && a.ordered
		a.stage = bound
		klog.InfoS("Bound", "pod", klog.KObj(pod), "node", a.Node, "devices", a.list(), "job", a.job())
	}
	stopping := a.stopping
	b.reportStarted(a)
	b.mutex.Unlock()
	b.touchClaim(pod)
	if stopping && pod.DeletionTimestamp == nil {
		return b.stop(ctx, pod, a.job())
	}
	return nil
}

// Somebody else bound the pod: it has none of the devices that the engine chose for it.
func (b *Bridge) leaveElsewhere(ctx context.Context, ref PodRef) error {
	if err := b.withdraw(ctx, ref, "the pod was bound by somebody else"); err != nil {
		return err
	}
	if a := b.attemptOf(ref.UID); a != nil {
		return b.settle(ctx, a)
	}
	return nil
}

// With the mutex held.
func (b *Bridge) reportStarted(a *attempt) {
	if a.told {
		return
	}
	a.told = b.report(a.Node, &pb.Report{What: &pb.Report_Started{Started: &pb.Started{Key: a.key(),
		PlacedAtNs: a.PlacedAt, StartedUnixNs: time.Now().UnixNano()}}})
}

// The pod has ended, or is no more: devices and claim are free again.
func (b *Bridge) finish(ctx context.Context, ref PodRef) error {
	a, j := b.attemptOf(ref.UID), b.jobOf(ref.UID)
	if a == nil && j == nil {
		b.mutex.Lock()
		defer b.mutex.Unlock()
		delete(b.refusals, ref.UID)
		delete(b.submissions, ref.UID)
		delete(b.submitting, ref.UID)
		delete(b.eventTold, ref.UID)
		return nil
	}
	if !b.isRecovered() {
		return nil
	}
	pod, err := b.live(ctx, ref)
	if err != nil {
		return err
	}
	if pod != nil && !over(pod) {
		b.podQueue.AddAfter(ref, time.Second) // The cache is behind.
		return nil
	}
	if a == nil || a.stage != bound {
		if err := b.withdraw(ctx, ref, "the pod is gone"); err != nil {
			return err
		}
		if a = b.attemptOf(ref.UID); a != nil {
			return b.settle(ctx, a)
		}
		return b.dropLeasesOf(ctx, ref)
	}
	outcome := outcomeOf(pod)
	if pod == nil && !a.stopping {
		// Nobody is to start this work once more.
		if err := b.options.Engine.Cancel(ctx, a.job()); err != nil {
			return err
		}
	}
	return b.end(ctx, a, outcome)
}

// Removes the leases of a pod that ended while this program was away.
func (b *Bridge) dropLeasesOf(ctx context.Context, ref PodRef) error {
	for _, object := range b.leases.GetStore().List() {
		lease := object.(*coordinationv1.Lease)
		if leases.Holder(lease) == string(ref.UID) && lease.Namespace == ref.Namespace {
			if err := b.store.Delete(ctx, lease); err != nil {
				return err
			}
		}
	}
	return nil
}

// live is the pod as the API server has it, not a cache; nil: it is gone for certain.
func (b *Bridge) live(ctx context.Context, ref PodRef) (*corev1.Pod, error) {
	pod, err := b.options.Client.CoreV1().Pods(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || (err == nil && pod.UID != ref.UID) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return pod, nil
}

// Nil: a pod that was deleted.
func outcomeOf(pod *corev1.Pod) *pb.Outcome {
	now := time.Now().UnixNano()
	if pod == nil {
		return &pb.Outcome{Cause: pb.Outcome_STOPPED, Detail: "the pod was deleted", EndedUnixNs: now}
	}
	outcome := &pb.Outcome{Cause: pb.Outcome_EXITED, EndedUnixNs: now, Detail: pod.Status.Reason}
	if pod.Status.Phase == corev1.PodSucceeded {
		return outcome
	}
	outcome.ExitCode = 1
	for i := range pod.Status.ContainerStatuses {
		if ended := pod.Status.ContainerStatuses[i].State.Terminated; ended != nil && ended.ExitCode != 0 {
			outcome.ExitCode = ended.ExitCode
			if ended.Reason == "OOMKilled" {
				outcome.Cause = pb.Outcome_OUT_OF_MEMORY
			}
			break
		}
	}
	return outcome
}

// Drops the leases, then tells the engine that the attempt is over and its devices are free. The order matters: the engine
// gives a device away as soon as it is told.
func (b *Bridge) end(ctx context.Context, a *attempt, outcome *pb.Outcome) error {
	if err := b.store.Drop(ctx, a.ref.Namespace, a.ref.UID, a.Node, a.ids(), a.decision()); err != nil {
		return err
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if now := b.attempts[a.ref.UID]; now == nil || !now.same(a.key(), a.PlacedAt) {
		return nil
	}
	ended := &pb.Report{What: &pb.Report_Ended{Ended: &pb.Ended{Key: a.key(), PlacedAtNs: a.PlacedAt, Outcome: outcome}}}
	if !b.report(a.Node, ended) {
		return fmt.Errorf("node %s is not connected to the engine", a.Node)
	}
	for _, d := range a.Devices {
		b.report(a.Node, engine.Released(uint32(d.ID), d.Generation))
	}
	delete(b.attempts, a.ref.UID)
	j := b.jobs[a.ref.UID]
	switch {
	case outcome.Cause == pb.Outcome_NOT_STARTED:
		if j != nil {
			j.state, j.message, j.refusal = pb.JobState_JOB_STATE_PENDING, "waits again", outcome.Detail
			b.touch(b.waitingOf(j))
		}
	case a.gang == "":
		b.forget(a.ref.UID)
	case a.stage == bound: // The gang's other members may go on.
		delete(b.jobs, a.ref.UID)
	}
	klog.InfoS("Ended", "pod", klog.KRef(a.ref.Namespace, a.ref.Name), "job", a.job(), "cause", outcome.Cause,
		"detail", outcome.Detail)
	b.podQueue.Add(a.ref)
	b.claimQueue.Add(types.NamespacedName{Namespace: a.ref.Namespace, Name: a.claim})
	b.touchGang(a.ref.Namespace, a.gang)
	return nil
}
