package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	v1 "gpusched/kube/api/v1"
	"gpusched/kube/engine"
	"gpusched/kube/engine/pb"
)

// Gangs: the pods whose claims name one GpuGang are members of one job of the engine. The engine places all of them or
// none. A member that passed upstream's rules is held in Permit; the engine is told when its record and leases are there,
// and says go when all members are so far. A member that is refused ends the attempt of all.

// member is a pod of a gang's job.
type member struct {
	ref     PodRef
	version string // Its claim's.
	part    int    // Of the job; less than 0: not known.
	rank    int    // By the pod's record; less than 0: not known, its place in its part counts.
}

// isFor says whether the job was made for this claim of this pod, as the claim is now.
func (j *job) isFor(uid types.UID, claim *v1.GpuClaim) bool {
	if j.gang.UID == "" {
		return j.key == keyOf(uid, versionOf(claim))
	}
	return slices.ContainsFunc(j.members, func(m member) bool { return m.ref.UID == uid && m.version == versionOf(claim) })
}

// memberOf is the pod that an order is for; empty: none is known.
func (j *job) memberOf(order *pb.StartAttempt) types.UID {
	rank := int(order.Key.GetMember())
	for _, m := range j.members {
		if m.rank == rank {
			return m.ref.UID
		}
	}
	part, before := 0, 0
	if all := order.Gang.GetMembers(); rank < len(all) {
		part = int(all[rank].Part)
		for _, one := range all[:rank] {
			if int(one.Part) == part {
				before++
			}
		}
	}
	for _, m := range j.members {
		if m.part != part {
			continue
		}
		if before == 0 {
			if m.rank >= 0 {
				return "" // Its record has another rank.
			}
			return m.ref.UID
		}
		before--
	}
	return ""
}

func (b *Bridge) gang(namespace, name string) *v1.GpuGang {
	found, exists, err := b.gangs.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !exists {
		return nil
	}
	return found.(*v1.GpuGang)
}

func (b *Bridge) touchGang(namespace, name string) {
	if name != "" {
		b.gangQueue.Add(types.NamespacedName{Namespace: namespace, Name: name})
	}
}

// claimed is a pod with its claim.
type claimed struct {
	pod   *corev1.Pod
	claim *v1.GpuClaim
}

// The pods that the gang could have, always in the same order.
func (b *Bridge) candidates(namespace, gang string) []claimed {
	var all []claimed
	found, err := b.claims.GetIndexer().ByIndex(claimsByGang, namespace+"/"+gang)
	if err != nil {
		return nil
	}
	for _, one := range found {
		claim := one.(*v1.GpuClaim)
		if unsupported(claim) != "" {
			continue
		}
		for _, pod := range b.podsOf(namespace, claim.Name) {
			if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && !over(pod) && len(pod.Spec.SchedulingGates) == 0 {
				all = append(all, claimed{pod, claim})
			}
		}
	}
	slices.SortFunc(all, func(a, b claimed) int {
		if order := b.claim.Spec.Devices.Count - a.claim.Spec.Devices.Count; order != 0 {
			return int(order)
		}
		return compareText(string(a.pod.UID), string(b.pod.UID))
	})
	return all
}

// gangRequest is the job of these pods, and its members in the order of its parts; or why there can be none.
func (b *Bridge) gangRequest(gang *v1.GpuGang, pods []claimed) (*engine.Request, []member, string) {
	if len(pods) < int(gang.Spec.Minimum) {
		return nil, nil, fmt.Sprintf("gang %q waits for its pods: %d of %d are there", gang.Name, len(pods), gang.Spec.Minimum)
	}
	request := &engine.Request{Tenant: b.tenantOf(gang.Namespace), Namespace: gang.Namespace, Name: gang.Name,
		UID: string(gang.UID), Gang: true, Domain: string(gang.Spec.Domain), Priority: priorityOf(pods[0].pod)}
	first, last := pods[0].claim, pods[len(pods)-1].claim // Those with the most devices and with the fewest.
	policy := first.Spec.Devices.Policy
	request.DeviceIDs = idsOf(first)
	switch {
	case last.Spec.Devices.Count > 1:
		request.Layout, request.BandwidthGBps = layoutOf(first), bandwidthOf(first)
	case first.Spec.Devices.Count > 1 && (policy == v1.PolicySpread || bandwidthOf(first) > 0):
		return nil, nil, fmt.Sprintf("a claim of gang %q asks for one device, which has neither policy spread nor links: all "+
			"members of a gang have one policy and one topology", gang.Name)
	} // Else the best links: one device has no neighbours, and the engine takes one layout for all.
	if first.Spec.Selector != nil {
		request.NodeLabels = sortedLabels(first.Spec.Selector.MatchLabels)
	}
	digest := sha256.New()
	fmt.Fprintf(digest, "%s %s\n", gang.UID, gang.Spec.Domain)
	var members []member
	for _, one := range pods {
		if !sameKind(one.claim, first) {
			return nil, nil, fmt.Sprintf("the claims %q and %q of gang %q ask for different policies, selectors or links: "+
				"only the count may differ", first.Name, one.claim.Name, gang.Name)
		}
		request.Priority = min(request.Priority, priorityOf(one.pod)) // No member takes another one's right.
		if last := len(request.Parts) - 1; last >= 0 && request.Parts[last].Devices == one.claim.Spec.Devices.Count {
			request.Parts[last].Members++
		} else {
			request.Parts = append(request.Parts, engine.Part{Devices: one.claim.Spec.Devices.Count, Members: 1})
		}
		members = append(members, member{ref: refOf(one.pod), version: versionOf(one.claim), part: len(request.Parts) - 1,
			rank: -1})
		fmt.Fprintf(digest, "%s %s\n", one.pod.UID, versionOf(one.claim))
	}
	if len(request.Parts) > engine.PartsMax {
		return nil, nil, fmt.Sprintf("the claims of gang %q ask for more than %d different counts", gang.Name, engine.PartsMax)
	}
	request.Claim = hex.EncodeToString(digest.Sum(nil))
	request.Key = request.Claim
	return request, members, ""
}

// Whether two claims of a gang differ in nothing but their counts.
func sameKind(a, b *v1.GpuClaim) bool {
	x, y := a.Spec, b.Spec
	x.Devices.Count, y.Devices.Count = 0, 0
	return equality.Semantic.DeepEqual(x, y)
}

// A pod that is to begin with others: it is told what its gang waits for, and passes when the engine has placed it.
func (b *Bridge) syncMember(ctx context.Context, pod *corev1.Pod, claim *v1.GpuClaim) error {
	ref := refOf(pod)
	problem := unsupported(claim)
	b.refuse(ref.UID, problem)
	a, j := b.attemptOf(ref.UID), b.jobOf(ref.UID)
	if j != nil && j.gang.UID == "" {
		if err := b.withdraw(ctx, ref, "the claim has changed"); err != nil {
			return err
		}
		a, j = b.attemptOf(ref.UID), nil
	}
	b.touchGang(claim.Namespace, claim.Spec.GangRef)
	switch {
	case a != nil:
		return b.activate(ctx, pod)
	case j != nil:
		return b.tellOf(ctx, pod, j)
	case problem == "":
		b.mutex.Lock()
		problem = b.gangTold[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Spec.GangRef}]
		b.mutex.Unlock()
	}
	if problem == "" {
		return nil // The gang is about to be looked at.
	}
	return b.tell(ctx, pod, problem)
}

// Brings one gang a step further. Called for one gang by one goroutine at a time.
func (b *Bridge) syncGang(ctx context.Context, name types.NamespacedName) error {
	if !b.isRecovered() || b.Trouble() != "" {
		return nil // Its pods are looked at when that is over.
	}
	gang := b.gang(name.Namespace, name.Name)
	pods := b.candidates(name.Namespace, name.Name)
	told, failed, err := b.formGang(ctx, name, gang, pods)
	if err != nil {
		return err
	}
	b.mutex.Lock()
	changed := b.gangTold[name] != told
	b.gangTold[name] = told
	if gang == nil && len(pods) == 0 {
		delete(b.gangTold, name)
	}
	b.mutex.Unlock()
	if changed {
		for _, one := range pods {
			b.podQueue.Add(refOf(one.pod))
			b.claimQueue.Add(types.NamespacedName{Namespace: name.Namespace, Name: one.claim.Name})
		}
	}
	if gang == nil {
		return nil
	}
	return b.writeGang(ctx, gang, b.gangStatus(gang, told, failed, len(pods)))
}

// Makes the gang's job be that of its pods. Returns what pods that have no job are told, and whether the engine refuses.
func (b *Bridge) formGang(ctx context.Context, name types.NamespacedName, gang *v1.GpuGang, pods []claimed) (
	told string, refused bool, err error) {
	j, active := b.gangJob(name)
	if j != nil && j.ended() {
		waits := false
		for _, one := range pods {
			if slices.ContainsFunc(j.members, func(m member) bool { return m.ref.UID == one.pod.UID }) {
				klog.InfoS("The gang's job was cancelled: evicting the pod", "pod", klog.KObj(one.pod), "job", j.id)
				waits, err = true, b.evict(ctx, one.pod)
				if err != nil {
					return "", false, err
				}
			}
		}
		if waits || active {
			return fmt.Sprintf("%s of gang %q was cancelled", j.id, name.Name), false, nil
		}
	}
	if active {
		return fmt.Sprintf("gang %q has begun without this pod, which waits for its next start", name.Name), false, nil
	}
	var request *engine.Request
	var members []member
	if gang == nil {
		told = fmt.Sprintf("gpu gang %q does not exist in namespace %q", name.Name, name.Namespace)
	} else {
		request, members, told = b.gangRequest(gang, pods)
	}
	if j != nil && (told != "" || j.key != request.Key || engine.Final(j.state)) {
		if !engine.Final(j.state) {
			if err := b.options.Engine.Cancel(ctx, j.id); err != nil {
				return "", false, err
			}
		}
		b.mutex.Lock()
		b.forgetGang(b.gangJobs[j.gang.UID])
		b.mutex.Unlock()
		j = nil
	}
	if told != "" || j != nil {
		return told, false, nil
	}
	return b.submitGang(ctx, gang, request, members)
}

// The gang's job, as a copy, and whether a pod of it has devices.
func (b *Bridge) gangJob(name types.NamespacedName) (*job, bool) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for _, j := range b.gangJobs {
		if j.gang.Namespace != name.Namespace || j.gang.Name != name.Name {
			continue
		}
		seen := *j
		return &seen, slices.ContainsFunc(j.members, func(m member) bool {
			a := b.attempts[m.ref.UID]
			return a != nil && a.job() == j.id
		})
	}
	return nil, false
}

func (b *Bridge) submitGang(ctx context.Context, gang *v1.GpuGang, request *engine.Request, members []member) (
	string, bool, error) {
	key := request.Key
	b.mutex.Lock()
	request.Key = fmt.Sprintf("%s/%s/%d", key, b.process, b.submissions[gang.UID])
	b.submitting[gang.UID] = nil
	b.mutex.Unlock()
	id, err := b.options.Engine.Submit(ctx, request)
	if engine.Away(err) {
		return "", false, err // Not known whether it happened: the same key again.
	}
	b.mutex.Lock()
	early := b.submitting[gang.UID]
	delete(b.submitting, gang.UID)
	if err != nil {
		b.mutex.Unlock()
		b.gangQueue.AddAfter(types.NamespacedName{Namespace: gang.Namespace, Name: gang.Name}, refusedAgain)
		return "the engine refuses the gang: " + engine.Reason(err), true, nil
	}
	j := &job{id: id, key: key, state: pb.JobState_JOB_STATE_PENDING, message: "waits for the engine's decision",
		gang: PodRef{gang.Namespace, gang.Name, gang.UID}, members: members}
	b.gangJobs[gang.UID] = j
	for _, m := range members {
		b.jobs[m.ref.UID] = j
		b.podQueue.Add(m.ref)
	}
	b.mutex.Unlock()
	klog.InfoS("Submitted", "gang", klog.KObj(gang), "job", id, "members", len(members))
	for _, one := range early {
		b.Start(one.node, one.order)
	}
	return "", false, nil
}

// The gang's next submission is another one; what was placed for pods that are not bound is taken back. With the mutex
// held.
func (b *Bridge) forgetGang(j *job) {
	if j == nil {
		return
	}
	for _, m := range j.members {
		if b.jobs[m.ref.UID] != j {
			continue
		}
		delete(b.jobs, m.ref.UID)
		if a := b.attempts[m.ref.UID]; a != nil && a.stage < bound && a.job() == j.id {
			b.leave(a, "the gang was taken back")
		}
		b.podQueue.Add(m.ref)
	}
	if b.gangJobs[j.gang.UID] == j {
		delete(b.gangJobs, j.gang.UID)
		b.submissions[j.gang.UID]++
	}
	b.touchGang(j.gang.Namespace, j.gang.Name)
}

// Hold says how long the pod is to wait in Permit; 0: it passes. An error: nothing is placed there for it any more.
func (b *Bridge) Hold(uid types.UID, nodeName string) (time.Duration, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	a := b.attempts[uid]
	if a == nil || a.stage != placed || a.Node != nodeName {
		return 0, errTakenBack
	}
	if !a.barrier {
		return 0, nil
	}
	a.held = true
	b.podQueue.Add(a.ref)
	limit := v1.GangTimeoutMax
	if gang := b.gang(a.ref.Namespace, a.gang); gang != nil && gang.Spec.TimeoutSeconds > 0 {
		limit = min(limit, int(gang.Spec.TimeoutSeconds))
	}
	return time.Duration(limit) * time.Second, nil
}

// Makes what must be durable before the engine is told that the member is ready, and lets it pass at the engine's word.
func (b *Bridge) syncHeld(ctx context.Context, pod *corev1.Pod, a *attempt) error {
	if !a.prepared {
		if err := b.prepare(ctx, a, pod); err != nil {
			if passes(err) {
				return err
			}
			b.mutex.Lock()
			defer b.mutex.Unlock()
			if now := b.attempts[a.ref.UID]; now != nil && now.stage == placed && now.decision() == a.decision() {
				b.leave(now, err.Error())
			}
			return nil
		}
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	now := b.attempts[a.ref.UID]
	if now == nil || now.stage != placed || now.decision() != a.decision() {
		return nil
	}
	if !now.prepared {
		now.prepared = true
		b.report(now.Node, &pb.Report{What: &pb.Report_Prepared{Prepared: &pb.Prepared{Key: now.key(),
			PlacedAtNs: now.PlacedAt}}})
	}
	if now.released {
		b.options.Queue.Allow(now.ref.UID)
		b.podQueue.AddAfter(now.ref, allowAgain) // Permit may not wait yet.
	}
	return nil
}

func (b *Bridge) gangStatus(gang *v1.GpuGang, told string, refused bool, waiting int) v1.GpuGangStatus {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	status := v1.GpuGangStatus{Phase: v1.PhasePending, Members: int32(waiting), Message: told}
	if refused {
		status.Phase = v1.PhaseFailed
	}
	j := b.gangJobs[gang.UID]
	if j == nil {
		return status
	}
	status.Members, status.Job, status.Message = int32(len(j.members)), j.id, j.text()
	reserved := 0
	for _, m := range j.members {
		switch a := b.attempts[m.ref.UID]; {
		case a == nil || a.job() != j.id || a.stage == leaving:
		case a.stage == bound:
			status.Bound++
		default:
			reserved++
		}
	}
	switch {
	case status.Bound > 0 && reserved == 0:
		status.Phase, status.Message = v1.PhaseBound, "the members are bound"
	case reserved+int(status.Bound) == len(j.members):
		status.Phase, status.Message = v1.PhaseReserved, "the members are about to be bound"
	}
	return status
}

func (b *Bridge) writeGang(ctx context.Context, gang *v1.GpuGang, wanted v1.GpuGangStatus) error {
	wanted.Message = cut(wanted.Message)
	if wanted == gang.Status {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": gang.UID}, "status": map[string]any{
		"phase": wanted.Phase, "members": wanted.Members, "bound": wanted.Bound, "job": wanted.Job,
		"message": wanted.Message}})
	if err != nil {
		return err
	}
	_, err = b.options.Dynamic.Resource(gangsResource).Namespace(gang.Namespace).Patch(ctx, gang.Name,
		types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
