// Package leases holds devices by Lease objects: one per device, in the pod's namespace, seen by everybody.
package leases

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
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

// Take creates the leases of a pod's devices, all or none: after an error none that this call created is left, as far as
// the API server answers; the collector removes the rest. A lease that the pod has already is kept. A lease of anybody
// else for one of the devices, in any namespace, is an error of type *TakenError. Two who take one device at the same
// time may both be refused, and never both succeed: each looks for the other's lease after it has created its own.
func (s *Store) Take(ctx context.Context, pod *corev1.Pod, node string, ids []int32) error {
	var created []*coordinationv1.Lease
	undo := func(reason error) error {
		for _, lease := range created {
			if err := s.delete(context.WithoutCancel(ctx), lease); err != nil {
				reason = errors.Join(reason, err)
			}
		}
		return reason
	}
	for _, id := range ids {
		lease, err := s.create(ctx, pod, Name(node, id))
		if err != nil {
			return undo(err)
		}
		if lease != nil {
			created = append(created, lease)
		}
	}
	for _, id := range ids {
		if err := s.check(ctx, pod, Name(node, id)); err != nil {
			return undo(err)
		}
	}
	return nil
}

// Nil without an error: the pod had it already.
func (s *Store) create(ctx context.Context, pod *corev1.Pod, name string) (*coordinationv1.Lease, error) {
	holder := string(pod.UID)
	now := metav1.NowMicro()
	leases := s.Client.CoordinationV1().Leases(pod.Namespace)
	lease, err := leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: pod.Namespace, Labels: labelsOf(pod)},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, AcquireTime: &now},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return lease, err
	}
	lease, err = leases.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if Holder(lease) != holder {
		return nil, &TakenError{Device: name, Namespace: pod.Namespace, Holder: Holder(lease)}
	}
	return nil, nil
}

// The list is not from a cache: whoever created a lease of this name before us is in it.
func (s *Store) check(ctx context.Context, pod *corev1.Pod, name string) error {
	same, err := s.Client.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	if err != nil {
		return err
	}
	ours := false
	for i := range same.Items {
		if lease := &same.Items[i]; Holder(lease) != string(pod.UID) {
			return &TakenError{Device: name, Namespace: lease.Namespace, Holder: Holder(lease)}
		} else if lease.Namespace == pod.Namespace {
			ours = true
		}
	}
	if !ours {
		return fmt.Errorf("lease %s/%s was removed while its pod was bound", pod.Namespace, name)
	}
	return nil
}

// Drop removes the leases of these devices that the pod holds. Leases that are gone, or somebody else's, are no error.
func (s *Store) Drop(ctx context.Context, namespace string, pod types.UID, node string, ids []int32) error {
	var failed error
	for _, id := range ids {
		lease, err := s.Client.CoordinationV1().Leases(namespace).Get(ctx, Name(node, id), metav1.GetOptions{})
		if err == nil && Holder(lease) == string(pod) {
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
