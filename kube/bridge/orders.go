package bridge

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	v1 "gpusched/kube/api/v1"
	"gpusched/kube/engine"
	"gpusched/kube/engine/pb"
	"gpusched/kube/leases"
)

// Orders of the engine to the nodes: the methods of engine.Host.

// Registration lists the node's devices and the attempts that are on it.
func (b *Bridge) Registration(name string) *pb.Register {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	n := b.nodes[name]
	if n == nil { // Taken away a moment ago; its connection ends.
		n = &node{}
	}
	register := &pb.Register{Instance: b.cluster + "/" + name, BootId: b.cluster, Version: "gpu-scheduler-kube",
		CpuMilli: n.told.cpuMilli, MemoryMb: n.told.memoryMB, Links: n.told.links, Labels: n.told.labels, Features: []string{engine.Executor}}
	for _, d := range n.told.devices {
		register.Devices = append(register.Devices, proto.Clone(d).(*pb.Device))
	}
	for _, a := range b.attempts {
		if a.Node != name {
			continue
		}
		known := &pb.AttemptOnNode{Key: a.key(), PlacedAtNs: a.PlacedAt}
		for _, d := range a.Devices {
			known.Devices = append(known.Devices, &pb.GrantedDevice{Index: uint32(d.ID), Generation: d.Generation, Uuid: d.UUID})
		}
		register.Attempts = append(register.Attempts, known)
	}
	return register
}

// The engine can place a job before its submission is answered.
type earlyOrder struct {
	node  string
	order *pb.StartAttempt
}

// Start notes the engine's decision about a pod; the pod then passes into the scheduling queue.
func (b *Bridge) Start(name string, order *pb.StartAttempt) {
	r := recordOf(name, order)
	var spec pb.JobSpec
	if err := proto.Unmarshal(order.Spec, &spec); err != nil {
		klog.ErrorS(err, "The engine's order cannot be read", "job", r.job())
	}
	owner := types.UID(spec.Labels[engine.LabelPodUID] + spec.Labels[engine.LabelGangUID]) // One of the two.
	b.mutex.Lock()
	defer b.mutex.Unlock()
	uid, gang := owner, ""
	if j := b.gangJobs[owner]; j != nil && j.id == r.job() {
		uid, gang = j.memberOf(order), j.gang.Name
	}
	if a := b.attempts[uid]; a != nil && a.same(order.Key, order.PlacedAtNs) {
		if a.stage == bound {
			a.told = false // The engine does not know yet that it began.
			b.reportStarted(a)
		}
		b.podQueue.Add(a.ref)
		return
	}
	if n := b.nodes[name]; n != nil && n.link.HasEnded(order.Key, order.PlacedAtNs) {
		return // It was given back, and the engine repeated the order before it knew.
	}
	if _, under := b.submitting[owner]; under && b.jobs[owner] == nil && b.gangJobs[owner] == nil {
		b.submitting[owner] = append(b.submitting[owner], earlyOrder{node: name, order: order})
		return
	}
	if reason := b.whyNot(uid, &r, order); reason != "" {
		klog.InfoS("Not started", "job", r.job(), "node", name, "reason", reason)
		b.report(name, &pb.Report{What: &pb.Report_Ended{Ended: &pb.Ended{Key: order.Key, PlacedAtNs: order.PlacedAtNs,
			Outcome: &pb.Outcome{Cause: pb.Outcome_NOT_STARTED, Detail: reason}}}})
		for _, granted := range order.Devices {
			b.report(name, engine.Released(granted.Index, granted.Generation))
		}
		return
	}
	ref, claim := b.waiting(uid)
	b.attempts[uid] = &attempt{record: r, ref: ref, claim: claim, gang: gang, barrier: order.Gang != nil}
	klog.InfoS("Placed", "pod", klog.KRef(ref.Namespace, ref.Name), "job", r.job(), "node", name, "devices", r.list())
	b.podQueue.Add(ref)
	b.claimQueue.Add(types.NamespacedName{Namespace: ref.Namespace, Name: claim})
	b.touchGang(ref.Namespace, gang)
}

// Go lets a member of a gang pass: all members are held, with their records and leases.
func (b *Bridge) Go(name string, order *pb.GoAttempt) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for _, a := range b.attempts {
		if a.same(order.Key, order.PlacedAtNs) && a.Node == name && a.stage == placed {
			a.released = true
			b.podQueue.Add(a.ref)
		}
	}
}

// The pod that waits, and its claim; empty: there is none.
func (b *Bridge) waiting(uid types.UID) (PodRef, string) {
	found, err := b.pods.GetIndexer().ByIndex(podsByUID, string(uid))
	if err != nil || len(found) != 1 {
		return PodRef{}, ""
	}
	pod := found[0].(*corev1.Pod)
	if pod.DeletionTimestamp != nil || pod.Spec.NodeName != "" {
		return PodRef{}, ""
	}
	return refOf(pod), pod.Annotations[v1.AnnotationClaim]
}

// Why an order cannot be followed. With the mutex held.
func (b *Bridge) whyNot(uid types.UID, r *record, order *pb.StartAttempt) string {
	ref, _ := b.waiting(uid)
	switch {
	case b.nodes[r.Node] == nil || !b.nodes[r.Node].gone.IsZero():
		return nodeGone
	case b.attempts[uid] != nil:
		return "the pod has another attempt"
	case ref.UID == "":
		return "the pod is gone"
	case b.jobs[uid] == nil || b.jobs[uid].id != r.job():
		return "the job is not the pod's"
	}
	for _, granted := range order.Devices {
		if granted.ShareMilli != 0 || granted.MigProfile != "" {
			return "shares of devices are not supported"
		}
	}
	return ""
}

// Stop ends an attempt: a pod that is bound is evicted, any other is not bound any more.
func (b *Bridge) Stop(name string, order *pb.StopAttempt) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for _, a := range b.attempts {
		if !a.same(order.Key, order.PlacedAtNs) || a.Node != name {
			continue
		}
		if a.stage == bound {
			a.stopping = true
		} else {
			a.ordered = true
			b.leave(a, "the engine ended the attempt")
		}
		b.podQueue.Add(a.ref)
		return
	}
	b.report(name, &pb.Report{What: &pb.Report_Ended{Ended: &pb.Ended{Key: order.Key, PlacedAtNs: order.PlacedAtNs,
		Outcome: &pb.Outcome{Cause: pb.Outcome_SHIM_LOST, Detail: "no pod belongs to the attempt"}}}})
}

// Holder is the lease of a device, or the attempt on it. The engine is told by itself when nothing holds it any more.
func (b *Bridge) Holder(name string, granted *pb.GrantedDevice) string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	holder := b.holder(name, int32(granted.Index))
	if n := b.nodes[name]; n != nil && holder != "" {
		n.asked[granted.Index] = granted.Generation
	}
	return holder
}

// With the mutex held.
func (b *Bridge) holder(name string, id int32) string {
	for _, lease := range b.leasesOf(name, id) {
		return fmt.Sprintf("lease %s/%s is held by pod %s", lease.Namespace, lease.Name, leases.Holder(lease))
	}
	for _, a := range b.attempts {
		for _, d := range a.Devices {
			if a.Node == name && d.ID == id {
				return fmt.Sprintf("pod %s/%s has it", a.ref.Namespace, a.ref.Name)
			}
		}
	}
	return ""
}

// Reports devices that the engine asked about and that nothing holds any more. With the mutex held.
func (b *Bridge) releaseAsked(name string, n *node) {
	for index, generation := range n.asked {
		if b.holder(name, int32(index)) == "" {
			n.link.Report(engine.Released(index, generation))
			delete(n.asked, index)
		}
	}
}

func (b *Bridge) leasesOf(node string, id int32) []*coordinationv1.Lease {
	found, err := b.leases.GetIndexer().ByIndex(leasesByName, leases.Name(node, id))
	if err != nil {
		return nil
	}
	all := make([]*coordinationv1.Lease, 0, len(found))
	for _, one := range found {
		all = append(all, one.(*coordinationv1.Lease))
	}
	return all
}

// report hands a report to the node's connection; false: there is none. With the mutex held.
func (b *Bridge) report(name string, report *pb.Report) bool {
	n := b.nodes[name]
	if n == nil {
		return false
	}
	n.link.Report(report)
	return true
}
