package bridge

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	v1 "gpusched/kube/api/v1"
	"gpusched/kube/engine"
	"gpusched/kube/engine/pb"
)

// memberEnded is what the engine calls a member that is over.
const memberEnded = "ended"

var living = []pb.JobState{pb.JobState_JOB_STATE_PENDING, pb.JobState_JOB_STATE_SCHEDULED, pb.JobState_JOB_STATE_RUNNING,
	pb.JobState_JOB_STATE_PREEMPTED}

// Whose job it is, by its labels: a pod's, or a gang's.
func refOfJob(j *pb.Job) (ref PodRef, isGang, ok bool) {
	labels := j.Spec.GetLabels()
	whole, uid := labels[engine.LabelPod], labels[engine.LabelPodUID]
	if isGang = labels[engine.LabelGangUID] != ""; isGang {
		whole, uid = labels[engine.LabelGang], labels[engine.LabelGangUID]
	}
	namespace, name, ok := strings.Cut(whole, "/")
	return PodRef{namespace, name, types.UID(uid)}, isGang, ok && uid != "" && j.Spec.GetExecutor() == engine.Executor
}

// The nodes on which the job has devices.
func nodesOfJob(j *pb.Job) []string {
	var names []string
	if j.NodeName != "" {
		names = append(names, j.NodeName)
	}
	for _, m := range j.Members {
		if m.NodeName != "" {
			names = append(names, m.NodeName)
		}
	}
	return names
}

// Reads what this program did before it was started: which jobs are whose, and which pods have which devices. Only then
// are nodes registered, for the engine takes an attempt that is not listed for lost.
func (b *Bridge) recover(ctx context.Context) error {
	system, err := b.options.Client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := b.options.Engine.Check(ctx, b.options.Tenant); err != nil {
		return err
	}
	known, err := b.options.Engine.JobsOfPods(ctx, living...)
	if err != nil {
		return err
	}
	jobs, attempts := map[types.UID]*job{}, map[types.UID]*attempt{}
	gangs, listed := map[types.UID]*job{}, map[string][]corev1.Pod{}
	for _, one := range known {
		ref, isGang, ok := refOfJob(one)
		if !ok {
			continue
		}
		if isGang {
			if _, done := listed[ref.Namespace]; !done {
				all, err := b.options.Client.CoreV1().Pods(ref.Namespace).List(ctx, metav1.ListOptions{})
				if err != nil {
					return err
				}
				listed[ref.Namespace] = all.Items
			}
			b.adoptGang(one, ref, listed[ref.Namespace], gangs, jobs, attempts)
			continue
		}
		pod, err := b.podOf(ctx, ref)
		if err != nil {
			return err
		}
		b.adopt(one, ref, pod, jobs, attempts)
	}
	b.mutex.Lock()
	b.cluster, b.jobs, b.gangJobs, b.attempts, b.recovered = string(system.UID), jobs, gangs, attempts, true
	for _, one := range known { // Also nodes that are gone: the engine waits for a word about what it placed there.
		for _, name := range nodesOfJob(one) {
			if b.nodes[name] == nil {
				b.connectRecovered(ctx, name)
			}
		}
	}
	b.mutex.Unlock()
	klog.InfoS("Read what was there", "jobs", len(jobs), "with devices", len(attempts))
	for _, one := range known {
		if ref, isGang, ok := refOfJob(one); ok && isGang {
			b.touchGang(ref.Namespace, ref.Name)
		} else if ok {
			b.podQueue.Add(ref)
		}
	}
	for _, a := range attempts {
		b.podQueue.Add(a.ref)
	}
	for _, object := range b.pods.GetStore().List() {
		if pod, ok := object.(*corev1.Pod); ok && ours(pod) {
			b.podQueue.Add(refOf(pod))
		}
	}
	return nil
}

// From the cache when it is there; else what the API server says, for a pod that has ended is in no cache.
func (b *Bridge) podOf(ctx context.Context, ref PodRef) (*corev1.Pod, error) {
	if pod, err := b.podLister.Pods(ref.Namespace).Get(ref.Name); err == nil && pod.UID == ref.UID {
		return pod, nil
	}
	return b.live(ctx, ref)
}

func (b *Bridge) adopt(one *pb.Job, ref PodRef, pod *corev1.Pod, jobs map[types.UID]*job,
	attempts map[types.UID]*attempt) {
	var r *record
	if pod != nil {
		r = readRecord(pod)
	}
	here := r != nil && pod.Spec.NodeName == r.Node && r.job() == one.JobId
	if jobs[ref.UID] != nil && !here {
		return // The newest is listed first; an older one is a stray, unless the pod is bound by it.
	}
	// The claim may have been edited while this program was away: then the key is another one than the pod's is now.
	j := &job{id: one.JobId, pod: ref.UID, state: one.State, message: one.Message,
		key: keyOf(ref.UID, one.Spec.GetLabels()[engine.LabelClaim])}
	jobs[ref.UID] = j
	if here {
		attempts[ref.UID] = &attempt{record: *r, ref: ref, claim: pod.Annotations[v1.AnnotationClaim], stage: bound}
	}
}

// A gang's job has the pods that have a record of it, bound or not: a member's record is written before the engine is told
// that it is ready, so all members have one when the gang goes. Those that are missing are known when the gang's pods are
// those that the job was made for.
func (b *Bridge) adoptGang(one *pb.Job, ref PodRef, pods []corev1.Pod, gangs, jobs map[types.UID]*job,
	attempts map[types.UID]*attempt) {
	if gangs[ref.UID] != nil {
		return // The newest is listed first; an older one is a stray.
	}
	j := &job{id: one.JobId, state: one.State, message: one.Message, key: one.Spec.GetLabels()[engine.LabelClaim], gang: ref}
	gangs[ref.UID] = j
	if gang := b.gang(ref.Namespace, ref.Name); gang != nil && gang.UID == ref.UID {
		request, members, problem := b.gangRequest(gang, b.candidates(ref.Namespace, ref.Name))
		if problem == "" && request.Key == j.key {
			j.members = members
		}
	}
	for i := range pods {
		pod := &pods[i]
		r := readRecord(pod)
		if r == nil || r.job() != one.JobId || r.Attempt != uint32(one.Attempts) || int(r.Member) >= len(one.Members) ||
			one.Members[r.Member].State == memberEnded || (pod.Spec.NodeName != "" && pod.Spec.NodeName != r.Node) {
			continue
		}
		a := &attempt{record: *r, ref: refOf(pod), claim: pod.Annotations[v1.AnnotationClaim], gang: ref.Name,
			barrier: len(one.Members) > 1}
		if pod.Spec.NodeName != "" {
			a.stage = bound
		}
		attempts[a.ref.UID] = a
		b.rank(j, a)
	}
	for _, m := range j.members {
		jobs[m.ref.UID] = j
	}
}

// Notes the rank that a pod's record says.
func (b *Bridge) rank(j *job, a *attempt) {
	for i := range j.members {
		if j.members[i].ref.UID == a.ref.UID {
			j.members[i].rank = int(a.Member)
			return
		}
	}
	version := ""
	if claim := b.claim(a.ref.Namespace, a.claim); claim != nil {
		version = versionOf(claim)
	}
	j.members = append(j.members, member{ref: a.ref, version: version, part: -1, rank: int(a.Member)})
}

// A node of which only its pods are known: the agent's word comes later, or never. With the mutex held.
func (b *Bridge) connectRecovered(ctx context.Context, name string) {
	object, err := b.nodeLister.Get(name)
	found, exists, _ := b.nodeStatuses.GetStore().GetByKey(name)
	if err == nil && exists {
		b.connect(ctx, name, b.inventoryOf(object, found.(*v1.GpuNodeStatus)))
		return
	}
	now := inventory{labels: map[string]string{labelKubernetes: "true"}}
	for _, a := range b.attempts {
		if a.Node != name {
			continue
		}
		for _, d := range a.Devices {
			for len(now.devices) <= int(d.ID) {
				now.devices = append(now.devices, deviceOffer(b.deviceName("absent", name, len(now.devices)), "", 0,
					missingDevice, nodeGone))
			}
			now.devices[d.ID].Uuid = d.UUID
		}
	}
	b.connect(ctx, name, now)
	b.nodes[name].gone = time.Now()
}
