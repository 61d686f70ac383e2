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

var living = []pb.JobState{pb.JobState_JOB_STATE_PENDING, pb.JobState_JOB_STATE_SCHEDULED, pb.JobState_JOB_STATE_RUNNING,
	pb.JobState_JOB_STATE_PREEMPTED}

// A job's labels as a pod's name.
func refOfJob(j *pb.Job) (PodRef, bool) {
	namespace, name, ok := strings.Cut(j.Spec.GetLabels()[engine.LabelPod], "/")
	uid := j.Spec.GetLabels()[engine.LabelPodUID]
	return PodRef{namespace, name, types.UID(uid)}, ok && uid != "" && j.Spec.GetExecutor() == engine.Executor
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
	for _, one := range known {
		ref, ok := refOfJob(one)
		if !ok {
			continue
		}
		pod, err := b.podOf(ctx, ref)
		if err != nil {
			return err
		}
		b.adopt(one, ref, pod, jobs, attempts)
	}
	b.mutex.Lock()
	b.cluster, b.jobs, b.attempts, b.recovered = string(system.UID), jobs, attempts, true
	for _, one := range known { // Also nodes that are gone: the engine waits for a word about what it placed there.
		if one.NodeName != "" && b.nodes[one.NodeName] == nil {
			b.connectRecovered(ctx, one.NodeName)
		}
	}
	b.mutex.Unlock()
	klog.InfoS("Read what was there", "jobs", len(jobs), "bound", len(attempts))
	for _, one := range known {
		if ref, ok := refOfJob(one); ok {
			b.podQueue.Add(ref)
		}
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
	j := &job{id: one.JobId, state: one.State, message: one.Message,
		key: keyOf(ref.UID, one.Spec.GetLabels()[engine.LabelClaim])}
	jobs[ref.UID] = j
	if here {
		attempts[ref.UID] = &attempt{record: *r, ref: ref, claim: pod.Annotations[v1.AnnotationClaim], stage: bound}
	}
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
