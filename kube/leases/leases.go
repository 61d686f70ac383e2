// Package leases holds devices by Lease objects: one per device, in the pod's namespace, seen by everybody.
package leases

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"

	v1 "gpusched/kube/api/v1"
)

const nameMax = 253

// Name is the name of a device's lease, "gpu-<node>-<id>". A node's name that would make it too long is cut, and its
// digest put in the place of what is missing.
func Name(node string, id int32) string {
	name := fmt.Sprintf("gpu-%s-%d", node, id)
	if len(name) <= nameMax {
		return name
	}
	digest := fnv.New64a()
	digest.Write([]byte(node))
	tail := fmt.Sprintf("-%016x-%d", digest.Sum64(), id)
	return strings.TrimRight(name[:nameMax-len(tail)], "-.") + tail
}

// Labels of a pod's leases. A pod's name that is too long for a label's value is left out: the holder says who it is.
func labelsOf(pod *corev1.Pod) map[string]string {
	labels := map[string]string{v1.LabelManaged: "true"}
	if len(pod.Name) <= 63 {
		labels[v1.LabelPod] = pod.Name
	}
	return labels
}

// Store takes and drops leases at the API server; it keeps nothing itself.
type Store struct {
	Client kubernetes.Interface
}

// TakenError says that somebody else holds a device.
type TakenError struct {
	Device    string // The lease's name.
	Namespace string
	Holder    string
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("lease %s/%s is held by %q", e.Namespace, e.Device, e.Holder)
}

// Decision is the decision by which a pod gets devices, as its leases are stamped with it.
type Decision struct {
	Pod  *corev1.Pod
	Node string
	IDs  []int32
	// Name tells it from every other decision about the pod, this program's or another one's.
	Name string
	// IsCurrent says whether it is the decision that the pod's record names now.
	IsCurrent func(context.Context) (bool, error)
}

// Take creates the leases of a pod's devices, all or none: after an error none that this call created is left, as far as
// the API server answers; the collector removes the rest. A lease that the pod has already by this decision is kept. A
// lease of anybody else for one of the devices, in any namespace, is an error of type *TakenError. Of two who take one
// device at the same time the one whose lease was created first has it: each looks for the other's after it has created
// its own, and devices are taken in the order of their ids.
func (s *Store) Take(ctx context.Context, d *Decision) error {
	var created []*coordinationv1.Lease
	undo := func(reason error) error {
		for _, lease := range created {
			if err := s.delete(context.WithoutCancel(ctx), lease); err != nil {
				reason = errors.Join(reason, err)
			}
		}
		return reason
	}
	for _, id := range slices.Sorted(slices.Values(d.IDs)) {
		lease, isNew, err := s.create(ctx, d, Name(d.Node, id))
		if err != nil {
			return undo(err)
		}
		if isNew {
			created = append(created, lease)
		}
		if err := s.check(ctx, lease); err != nil {
			return undo(err)
		}
	}
	return nil
}

// False: the pod had it already.
func (s *Store) create(ctx context.Context, d *Decision, name string) (*coordinationv1.Lease, bool, error) {
	holder := string(d.Pod.UID)
	leases := s.Client.CoordinationV1().Leases(d.Pod.Namespace)
	for {
		now := metav1.NowMicro()
		lease, err := leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: d.Pod.Namespace, Labels: labelsOf(d.Pod),
				Annotations: map[string]string{v1.AnnotationAttempt: d.Name}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, AcquireTime: &now},
		}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return lease, true, err
		}
		lease, err = leases.Get(ctx, name, metav1.GetOptions{})
		switch {
		case err != nil:
			return nil, false, err
		case Holder(lease) != holder:
			return nil, false, &TakenError{Device: name, Namespace: d.Pod.Namespace, Holder: Holder(lease)}
		case lease.Annotations[v1.AnnotationAttempt] == d.Name:
			return lease, false, nil
		}
		// It is of another decision about the pod. Whoever made that wrote it into the pod's record before the lease,
		// and binds the pod only while it stands there.
		if current, err := d.IsCurrent(ctx); err != nil || !current {
			return nil, false, errors.Join(err, fmt.Errorf("lease %s/%s is of another decision about the pod",
				d.Pod.Namespace, name))
		}
		if err := s.delete(ctx, lease); err != nil {
			return nil, false, err
		}
	}
}

// The list is not from a cache: whoever created a lease of this name before us is in it.
func (s *Store) check(ctx context.Context, mine *coordinationv1.Lease) error {
	same, err := s.Client.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", mine.Name).String()})
	if err != nil {
		return err
	}
	there := false
	for i := range same.Items {
		lease := &same.Items[i]
		there = there || lease.UID == mine.UID
		if lease.UID != mine.UID && !isLater(lease, mine) {
			return &TakenError{Device: lease.Name, Namespace: lease.Namespace, Holder: Holder(lease)}
		}
	}
	if !there {
		return fmt.Errorf("lease %s/%s was removed while its pod was bound", mine.Namespace, mine.Name)
	}
	return nil
}

// Whether another lease was certainly created after mine, by a program of this kind, which then finds mine and gives
// its own up. Such programs never change a lease; of one that was changed it is not known when it was created.
func isLater(other, mine *coordinationv1.Lease) bool {
	if other.Labels[v1.LabelManaged] != "true" || other.Annotations[v1.AnnotationAttempt] == "" ||
		other.Spec.RenewTime != nil || other.Spec.LeaseTransitions != nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(other.ResourceVersion, mine.ResourceVersion)
	return err == nil && order > 0
}

// Drop removes the leases of these devices that the pod holds by the decision of this name. Leases that are gone,
// somebody else's, or of another decision, are no error.
func (s *Store) Drop(ctx context.Context, namespace string, pod types.UID, node string, ids []int32, decision string) error {
	var failed error
	for _, id := range ids {
		lease, err := s.Client.CoordinationV1().Leases(namespace).Get(ctx, Name(node, id), metav1.GetOptions{})
		// A lease of an older version of this program names no decision.
		if err == nil && Holder(lease) == string(pod) && slices.Contains([]string{"", decision},
			lease.Annotations[v1.AnnotationAttempt]) {
			err = s.delete(ctx, lease)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// Delete removes a lease as it was seen: one that has changed since stays.
func (s *Store) Delete(ctx context.Context, lease *coordinationv1.Lease) error {
	return s.delete(ctx, lease)
}

func (s *Store) delete(ctx context.Context, lease *coordinationv1.Lease) error {
	err := s.Client.CoordinationV1().Leases(lease.Namespace).Delete(ctx, lease.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Holder is the uid of the pod that has the lease; empty: nobody.
func Holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// Device is the id in the name of a lease of this node; false: it is no lease of the node's devices.
func Device(node, name string) (int32, bool) {
	digits := name[strings.LastIndexByte(name, '-')+1:]
	id, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || Name(node, int32(id)) != name {
		return 0, false
	}
	return int32(id), true
}
