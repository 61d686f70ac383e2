package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	v1 "gpusched/kube/api/v1"
	"gpusched/kube/engine/pb"
	"gpusched/kube/leases"
)

const (
	bindTries = 5
	// releasedFor is how long the binding of a gang's member is tried, for its others begin.
	releasedFor = 2 * time.Minute
	releasedTry = time.Second
	allowAgain  = 200 * time.Millisecond
)

var (
	errTakenBack = errors.New("the engine has taken its decision back")
	errUnheard   = errors.New("the GPU engine is not heard: nothing is bound until it is")
)

// Whether a fault of the API server may be over at the next try.
func passes(err error) bool {
	var network *url.Error
	return errors.As(err, &network) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
}

// Questions of the plug-in, in the order of a scheduling cycle.

// Held says why a pod is held before the scheduling queue; empty: the engine has placed it.
func (b *Bridge) Held(pod *corev1.Pod) string {
	if !asks(pod) {
		return MissingClaim
	}
	if a := b.attemptOf(pod.UID); a == nil || a.stage >= bound {
		return "waits for the GPU engine"
	}
	return ""
}

// Place is the node that the engine chose, and the name of that decision; false: none, or the engine is not heard now and
// nothing may be bound.
func (b *Bridge) Place(uid types.UID) (node, decision string, ok bool) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	a := b.attempts[uid]
	if a == nil || a.stage != placed || !b.heard(a.Node) {
		return "", "", false
	}
	return a.Node, a.decision(), true
}

// With the mutex held.
func (b *Bridge) heard(node string) bool {
	n := b.nodes[node]
	return n != nil && n.link.Connected() && b.troubles[engineName] == ""
}

// Refused notes that the pod is not bound where that decision of the engine wants it, and why. A pod that was bound after
// all stays bound.
func (b *Bridge) Refused(uid types.UID, decision, reason string) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	a := b.attempts[uid]
	if a == nil || a.stage >= bound || a.decision() != decision {
		return
	}
	if a.held && !a.released {
		reason = fmt.Sprintf("node %s: the other members of gang %q did not pass in time", a.Node, a.gang)
	}
	b.leave(a, reason)
}

// Ends an attempt whose pod is not bound. With the mutex held.
func (b *Bridge) leave(a *attempt, reason string) {
	if a.reason == "" {
		a.reason = reason
	}
	a.stage = leaving
	if a.held {
		b.options.Queue.Reject(a.ref.UID, a.reason)
	}
	b.podQueue.Add(a.ref)
}

// Prepare makes what must be durable before the pod is bound: the engine's decision in the pod's annotations, and the
// leases of its devices, all or none.
func (b *Bridge) Prepare(ctx context.Context, pod *corev1.Pod, nodeName string) error {
	var a *attempt
	err := persist(ctx, func(err error) bool { return errors.Is(err, errUnheard) && b.isReleased(pod.UID) },
		func() (err error) { a, err = b.begin(pod, nodeName); return err })
	if err != nil || a.prepared {
		return err
	}
	err = b.prepare(ctx, a, pod)
	if err != nil {
		b.mutex.Lock()
		if now := b.attempts[pod.UID]; now != nil && now.same(a.key(), a.PlacedAt) && now.reason == "" {
			now.reason = err.Error()
		}
		b.mutex.Unlock()
	}
	return err
}

func (b *Bridge) isReleased(uid types.UID) bool {
	a := b.attemptOf(uid)
	return a != nil && a.released
}

func (b *Bridge) begin(pod *corev1.Pod, nodeName string) (*attempt, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	a, j := b.attempts[pod.UID], b.jobs[pod.UID]
	switch {
	case a == nil || a.stage != placed || a.Node != nodeName:
		return nil, errTakenBack
	case a.barrier && !a.released:
		return nil, errors.New("the engine has not released the gang")
	case !b.heard(nodeName):
		return nil, errUnheard
	case j == nil || j.id != a.job():
		return nil, errors.New("the pod's job is another one by now")
	}
	claim := b.claimOf(pod)
	if claim == nil || !j.isFor(pod.UID, claim) {
		return nil, errors.New("the claim has changed")
	}
	a.stage = binding
	seen := *a
	return &seen, nil
}

func (b *Bridge) prepare(ctx context.Context, a *attempt, pod *corev1.Pod) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": map[string]string{
		v1.AnnotationAttempt: a.text(), v1.AnnotationAllocated: a.list(), v1.AnnotationAllocatedNode: a.Node}}})
	if err != nil {
		return err
	}
	_, err = b.options.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	if err != nil {
		return err
	}
	if err := b.store.Take(ctx, &leases.Decision{Pod: pod, Node: a.Node, IDs: a.ids(), Name: a.decision(),
		IsCurrent: func(ctx context.Context) (bool, error) { return b.isRecorded(ctx, a) }}); err != nil {
		return err
	}
	if now := b.attemptOf(pod.UID); now == nil || now.stage != a.stage || !now.same(a.key(), a.PlacedAt) {
		// It was taken back meanwhile, perhaps before the leases were there.
		return errors.Join(errTakenBack,
			b.store.Drop(context.WithoutCancel(ctx), pod.Namespace, pod.UID, a.Node, a.ids(), a.decision()))
	}
	return nil
}

// Whether the pod's record is of this attempt at this moment.
func (b *Bridge) isRecorded(ctx context.Context, a *attempt) (bool, error) {
	pod, err := b.live(ctx, a.ref)
	if err != nil || pod == nil {
		return false, err
	}
	return a.isOf(pod), nil
}

// Bind binds the pod as it is seen with the record of this attempt: a binding that is under way when the record is removed
// fails at the API server, however late it arrives there.
func (b *Bridge) Bind(ctx context.Context, pod *corev1.Pod, nodeName string) error {
	a := b.attemptOf(pod.UID)
	if a == nil || a.stage != binding {
		return errTakenBack
	}
	if !a.barrier {
		return b.bind(ctx, pod, a)
	}
	return persist(ctx, passes, func() error { return b.bind(ctx, pod, a) })
}

// Calls again while the error is of a kind that passes: other members of the gang begin.
func persist(ctx context.Context, again func(error) bool, call func() error) error {
	ctx, cancel := context.WithTimeout(ctx, releasedFor)
	defer cancel()
	for {
		err := call()
		if err == nil || !again(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(releasedTry):
		}
	}
}

func (b *Bridge) bind(ctx context.Context, pod *corev1.Pod, a *attempt) error {
	ref, nodeName := refOf(pod), a.Node
	var err error
	for range bindTries {
		var now *corev1.Pod
		if now, err = b.live(ctx, ref); err != nil {
			return err
		}
		if now == nil {
			return errors.New("the pod is gone")
		}
		if r := readRecord(now); r == nil || !r.same(a.key(), a.PlacedAt) {
			return errors.New("the record of the engine's decision was removed from the pod")
		}
		if now.Spec.NodeName == nodeName {
			return nil
		}
		err = b.options.Client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
				ResourceVersion: now.ResourceVersion},
			Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}}, metav1.CreateOptions{})
		if !apierrors.IsConflict(err) {
			return err
		}
	}
	return err
}

// settle takes back what was prepared for a pod that is not bound, and tells the engine.
func (b *Bridge) settle(ctx context.Context, a *attempt) error {
	pod, err := b.live(ctx, a.ref)
	if err != nil {
		return err
	}
	if pod != nil && pod.Spec.NodeName != "" {
		return b.boundAfterAll(ctx, a, pod)
	}
	if pod != nil && pod.Annotations[v1.AnnotationAttempt] != "" {
		// A record of another program's decision is that one's to remove.
		if r := readRecord(pod); r == nil || r.same(a.key(), a.PlacedAt) {
			if err := b.removeRecord(ctx, pod); err != nil {
				return err
			}
		}
	}
	outcome := &pb.Outcome{Cause: pb.Outcome_NOT_STARTED, Detail: a.reason}
	if a.ordered {
		outcome.Cause = pb.Outcome_STOPPED
	}
	return b.end(ctx, a, outcome)
}

// The binding succeeded though its answer was lost; or somebody else bound the pod, which has none of the devices then.
func (b *Bridge) boundAfterAll(ctx context.Context, a *attempt, pod *corev1.Pod) error {
	r := readRecord(pod)
	if r == nil || !r.same(a.key(), a.PlacedAt) || pod.Spec.NodeName != a.Node {
		return b.end(ctx, a, &pb.Outcome{Cause: pb.Outcome_NOT_STARTED, Detail: "the pod was bound by somebody else"})
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if now := b.attempts[a.ref.UID]; now != nil && now.same(a.key(), a.PlacedAt) {
		klog.InfoS("The pod was bound after all", "pod", klog.KObj(pod))
		now.stage, now.stopping = bound, now.ordered
		b.podQueue.Add(a.ref)
	}
	return nil
}

// Removes the record from the pod as it was seen: a pod that has changed since, and may be bound, is looked at again.
func (b *Bridge) removeRecord(ctx context.Context, pod *corev1.Pod) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID,
		"resourceVersion": pod.ResourceVersion, "annotations": map[string]any{v1.AnnotationAttempt: nil,
			v1.AnnotationAllocated: nil, v1.AnnotationAllocatedNode: nil}}})
	if err != nil {
		return err
	}
	_, err = b.options.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
