package bridge

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	v1 "gpusched/kube/api/v1"
)

var (
	claimsResource = v1.GroupVersion.WithResource("gpuclaims")
	gangsResource  = v1.GroupVersion.WithResource("gpugangs")
	nodesResource  = v1.GroupVersion.WithResource("gpunodestatuses")
)

// typed makes the cache hold our types, converted once.
func typed[T any](object any) (any, error) {
	raw, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil // Converted already.
	}
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, into); err != nil {
		return nil, err
	}
	return into, nil
}

// Indexes of caches.
const (
	podsByClaim  = "gpu.scheduling/claim"
	podsByUID    = "gpu.scheduling/uid"
	podsWaiting  = "gpu.scheduling/waiting"
	claimsByGang = "gpu.scheduling/gang"
	leasesByName = "gpu.scheduling/name"
)

func indexByClaim(object any) ([]string, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok || !ours(pod) || pod.Annotations[v1.AnnotationClaim] == "" {
		return nil, nil
	}
	return []string{pod.Namespace + "/" + pod.Annotations[v1.AnnotationClaim]}, nil
}

func indexByUID(object any) ([]string, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok || !ours(pod) {
		return nil, nil
	}
	return []string{string(pod.UID)}, nil
}

func indexWaiting(object any) ([]string, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok || !ours(pod) || pod.Spec.NodeName != "" {
		return nil, nil
	}
	return []string{podsWaiting}, nil
}

func indexByGang(object any) ([]string, error) {
	claim, ok := object.(*v1.GpuClaim)
	if !ok || claim.Spec.GangRef == "" {
		return nil, nil
	}
	return []string{claim.Namespace + "/" + claim.Spec.GangRef}, nil
}

func indexByName(object any) ([]string, error) {
	lease, ok := object.(*coordinationv1.Lease)
	if !ok {
		return nil, nil
	}
	return []string{lease.Name}, nil
}

// watch makes the informers of what upstream's scheduler does not watch itself. A failed first list is this program's
// trouble, told to each pod that waits.
func (b *Bridge) watch(factory dynamicinformer.DynamicSharedInformerFactory) error {
	b.claims = factory.ForResource(claimsResource).Informer()
	b.gangs = factory.ForResource(gangsResource).Informer()
	b.nodeStatuses = factory.ForResource(nodesResource).Informer()
	if err := b.claims.SetTransform(typed[v1.GpuClaim]); err != nil {
		return err
	}
	if err := b.claims.AddIndexers(cache.Indexers{claimsByGang: indexByGang}); err != nil {
		return err
	}
	if err := b.gangs.SetTransform(typed[v1.GpuGang]); err != nil {
		return err
	}
	if err := b.nodeStatuses.SetTransform(typed[v1.GpuNodeStatus]); err != nil {
		return err
	}
	for name, informer := range map[string]cache.SharedIndexInformer{
		claimsResource.GroupResource().String(): b.claims, gangsResource.GroupResource().String(): b.gangs,
		nodesResource.GroupResource().String(): b.nodeStatuses, leasesName: b.leases} {
		if err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
			cache.DefaultWatchErrorHandler(ctx, r, err)
			if apierrors.IsNotFound(err) {
				err = fmt.Errorf("the custom resource definition %s is not installed: apply kube/crds", name)
			}
			if !informer.HasSynced() {
				b.trouble(name, err)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}
