package bridge

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"gpusched/kube/engine"
)

// Ends of pods at the engine's word: because their job is cancelled, or because another job gets their devices.

// stop ends a bound pod. An event says first that it is ended for another job; the API server then notes the disruption
// in the pod's conditions, where controllers of pods look for it.
func (b *Bridge) stop(ctx context.Context, pod *corev1.Pod, id string) error {
	one, err := b.options.Engine.Job(ctx, id)
	switch {
	case err != nil: // The order stands, whether or not its reason is known.
		klog.InfoS("It is not known why the engine ends the pod", "pod", klog.KObj(pod), "job", id, "reason", err)
	case engine.Preempted(one):
		b.addEvent(pod, corev1.EventTypeNormal, "Preempted", "Preempting", fmt.Sprintf("%s %s", id, one.Message))
	}
	return b.evict(ctx, pod)
}

// Asks the API server to end the pod, with the pod's own grace. A PodDisruptionBudget may refuse: it is asked again,
// and the pod keeps its devices until it has ended.
func (b *Bridge) evict(ctx context.Context, pod *corev1.Pod) error {
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}}
	err := b.options.Client.CoreV1().Pods(pod.Namespace).EvictV1(ctx, eviction)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case apierrors.IsTooManyRequests(err):
		b.addEvent(pod, corev1.EventTypeWarning, "EvictionRefused", "Evicting",
			fmt.Sprintf("the engine ends the pod, and the API server refuses the eviction for now: %s", err))
		b.podQueue.AddAfter(refOf(pod), evictEvery)
		return nil
	}
	return err
}
