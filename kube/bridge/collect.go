package bridge

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	v1 "gpusched/kube/api/v1"
	"gpusched/kube/leases"
)

// A lease of a pod that lives and is not bound may be under way to it, from another program of this kind.
const unboundFor = 15 * time.Second

// Removes what a crash left: jobs and leases of pods that are no more. A look-up that fails is not an absence.
func (b *Bridge) collect(ctx context.Context) {
	b.collectJobs(ctx)
	for _, object := range b.leases.GetStore().List() {
		lease := object.(*coordinationv1.Lease)
		left, err := b.isLeft(ctx, lease)
		if err == nil && left {
			klog.InfoS("Removing a lease that no pod needs", "lease", klog.KObj(lease), "holder", leases.Holder(lease))
			err = b.store.Delete(ctx, lease)
		}
		if err != nil {
			klog.InfoS("A lease stays, for it is not known whether a pod needs it", "lease", klog.KObj(lease), "reason", err)
		}
	}
}

// Whether no pod needs the lease.
func (b *Bridge) isLeft(ctx context.Context, lease *coordinationv1.Lease) (bool, error) {
	b.mutex.Lock()
	for _, a := range b.attempts {
		if string(a.ref.UID) == leases.Holder(lease) && a.ref.Namespace == lease.Namespace && a.holds(lease.Name) {
			b.mutex.Unlock()
			return false, nil
		}
	}
	b.mutex.Unlock()
	pods := b.options.Client.CoreV1().Pods(lease.Namespace)
	found, err := b.pods.GetIndexer().ByIndex(podsByUID, leases.Holder(lease))
	name := lease.Labels[v1.LabelPod]
	if err == nil && len(found) == 1 {
		name = refOf(found[0].(*corev1.Pod)).Name
	}
	if name == "" { // A pod with a name that is no label, and in no cache: look for its uid.
		all, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for i := range all.Items {
			if string(all.Items[i].UID) == leases.Holder(lease) {
				name = all.Items[i].Name
			}
		}
		if name == "" {
			return true, nil
		}
	}
	pod, err := pods.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if pod.UID != types.UID(leases.Holder(lease)) || over(pod) {
		return true, nil
	}
	if pod.Spec.NodeName != "" { // Another program of this kind, or an engine that lost its data: the pod has it.
		r := readRecord(pod)
		return r != nil && !(&attempt{record: *r}).holds(lease.Name), nil
	}
	return time.Since(lease.CreationTimestamp.Time) > unboundFor, nil
}

func (a *attempt) holds(lease string) bool {
	for _, id := range a.ids() {
		if leases.Name(a.Node, id) == lease {
			return true
		}
	}
	return false
}

// Whether the job is that of this pod or gang.
func (b *Bridge) isOurs(id string, uid types.UID, isGang bool) bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	known := b.jobs
	if isGang {
		known = b.gangJobs
	}
	return known[uid] != nil && known[uid].id == id
}

// Cancels jobs that belong to no pod at two looks: a submission may be under way at one.
func (b *Bridge) collectJobs(ctx context.Context) {
	known, err := b.options.Engine.JobsOfPods(ctx, living...)
	if err != nil {
		return
	}
	b.collectNodes(known)
	strays := map[string]bool{}
	for _, one := range known {
		ref, isGang, ok := refOfJob(one)
		if !ok || b.isOurs(one.JobId, ref.UID, isGang) {
			continue
		}
		strays[one.JobId] = true
		if !b.strays[one.JobId] {
			continue
		}
		klog.InfoS("Cancelling a job that belongs to no pod", "job", one.JobId, "of", klog.KRef(ref.Namespace, ref.Name))
		if err := b.options.Engine.Cancel(ctx, one.JobId); err != nil {
			return
		}
	}
	b.strays = strays
}
