// Package bridge joins Kubernetes and the engine: a pod becomes a job, the engine's placement becomes the pod's node and
// devices, and what becomes of the pod is reported. Begin at pods.go.
//
// State that must outlive this program stands in the cluster: the engine's decision in the pod's annotation, the devices
// in leases, the binding in the pod. At a start all is read again (recover.go) before a node is registered.
package bridge

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	v1 "gpusched/kube/api/v1"
	"gpusched/kube/engine"
	"gpusched/kube/engine/pb"
	"gpusched/kube/leases"
)

const (
	workers       = 8
	pollEvery     = 2 * time.Second
	collectEvery  = 10 * time.Second
	activateEvery = 5 * time.Second
	activateTries = 24 // Two minutes in which upstream's scheduler did not take the pod.
	evictEvery    = 2 * time.Second
	refusedAgain  = 30 * time.Second // A submission that the engine refused is tried again after so long.
	retryAtFirst  = 200 * time.Millisecond
	retryAtMost   = 10 * time.Second
	engineName    = "engine"
	leasesName    = "leases.coordination.k8s.io"
)

// Queue is what upstream's scheduler does with a pod at this program's word.
type Queue interface {
	// Activate puts pods that were held back into the scheduling queue.
	Activate(logger klog.Logger, pods map[string]*corev1.Pod)
	// Allow lets a pod that waits in Permit pass; one that does not wait there is no error.
	Allow(uid types.UID)
	// Reject ends such a wait.
	Reject(uid types.UID, reason string)
}

// Options of a bridge.
type Options struct {
	Engine  *engine.Client
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// Shared is upstream's factory, which starts its informers in the leader alone.
	Shared informers.SharedInformerFactory
	Queue  Queue
	// Events of pods; nil: none are written.
	Events events.EventRecorder
	// Tenant of pods whose namespace has no label gpu.scheduling/tenant; empty: the namespace's name.
	Tenant string
}

// job is what the engine said last of a job: a pod's, or a gang's.
type job struct {
	id      string
	key     string // Key of its submission.
	state   pb.JobState
	message string
	// It is ended for another job, or was.
	preempted bool
	pod       types.UID // The pod, if it is one's.
	gang      PodRef    // The gang, if it is one's.
	members   []member  // Of a gang, in the order of the job's parts.
	asked     bool      // The message is the engine's.
	refusal   string    // Why it was not started where it was placed last.
	place     int64     // In line; 0: not known.
	start     time.Time // When it is expected to start; zero: not known.
}

// Bridge is safe for use from any goroutine.
type Bridge struct {
	options Options
	store   *leases.Store

	podLister    corelisters.PodLister
	pods         cache.SharedIndexInformer
	nodeLister   corelisters.NodeLister
	namespaces   corelisters.NamespaceLister
	leases       cache.SharedIndexInformer
	claims       cache.SharedIndexInformer
	gangs        cache.SharedIndexInformer
	nodeStatuses cache.SharedIndexInformer
	synced       []cache.InformerSynced // Upstream's.
	dynamic      dynamicinformer.DynamicSharedInformerFactory

	podQueue   workqueue.TypedRateLimitingInterface[PodRef]
	claimQueue workqueue.TypedRateLimitingInterface[types.NamespacedName]
	gangQueue  workqueue.TypedRateLimitingInterface[types.NamespacedName]
	nodeQueue  workqueue.TypedRateLimitingInterface[string]

	mutex       sync.Mutex
	recovered   bool
	cluster     string // The cluster's uid.
	troubles    map[string]string
	attempts    map[types.UID]*attempt
	jobs        map[types.UID]*job              // By pod; the members of a gang share one.
	gangJobs    map[types.UID]*job              // By gang.
	gangTold    map[types.NamespacedName]string // What pods of a gang that wait are told.
	eventTold   map[types.UID]string            // What the last event of a pod says.
	refusals    map[types.UID]string            // Why the engine or this program does not take the pod as it is.
	nodes       map[string]*node
	selected    map[string]bool // Keys of labels by which claims select nodes.
	strays      map[string]bool // Jobs that belonged to no pod at the last look.
	process     string          // Tells the submissions of this process from those of others.
	watching    bool            // The engine tells of changes of jobs.
	listed      time.Time       // When the jobs that wait were read last.
	submissions map[types.UID]int
	submitting  map[types.UID][]earlyOrder // Submissions under way, by pod or gang, and the orders that overtook the answer.
}

func newQueue[T comparable]() workqueue.TypedRateLimitingInterface[T] {
	return workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[T](retryAtFirst, retryAtMost))
}

// New makes a bridge before upstream's informers are started. Run makes it work.
func New(options Options) (*Bridge, error) {
	b := &Bridge{options: options, store: &leases.Store{Client: options.Client},
		podQueue: newQueue[PodRef](), claimQueue: newQueue[types.NamespacedName](),
		gangQueue: newQueue[types.NamespacedName](), nodeQueue: newQueue[string](),
		troubles: map[string]string{engineName: "the GPU engine was not asked yet"},
		attempts: map[types.UID]*attempt{}, jobs: map[types.UID]*job{}, gangJobs: map[types.UID]*job{},
		gangTold: map[types.NamespacedName]string{}, eventTold: map[types.UID]string{},
		selected: map[string]bool{}, refusals: map[types.UID]string{}, nodes: map[string]*node{}, submissions: map[types.UID]int{},
		submitting: map[types.UID][]earlyOrder{}, process: rand.Text()}
	core := options.Shared.Core().V1()
	b.pods, b.podLister = core.Pods().Informer(), core.Pods().Lister()
	b.nodeLister, b.namespaces = core.Nodes().Lister(), core.Namespaces().Lister()
	nodes := core.Nodes().Informer()
	b.synced = []cache.InformerSynced{b.pods.HasSynced, nodes.HasSynced, core.Namespaces().Informer().HasSynced}
	if err := b.pods.AddIndexers(cache.Indexers{podsByClaim: indexByClaim, podsByUID: indexByUID, podsWaiting: indexWaiting}); err != nil {
		return nil, err
	}
	b.leases = coordinationinformers.NewFilteredLeaseInformer(options.Client, metav1.NamespaceAll, 0,
		cache.Indexers{leasesByName: indexByName},
		func(o *metav1.ListOptions) { o.LabelSelector = labels.Set{v1.LabelManaged: "true"}.String() })
	b.dynamic = dynamicinformer.NewDynamicSharedInformerFactory(options.Dynamic, 0)
	if err := b.watch(b.dynamic); err != nil {
		return nil, err
	}
	return b, b.handle(nodes)
}

func on[T any](call func(T)) cache.ResourceEventHandlerFuncs {
	take := func(object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if one, ok := object.(T); ok {
			call(one)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: take, UpdateFunc: func(_, object any) { take(object) }, DeleteFunc: take}
}

func (b *Bridge) handle(nodes cache.SharedIndexInformer) error {
	var failed error
	add := func(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) {
		_, err := informer.AddEventHandler(handler)
		failed = errors.Join(failed, err)
	}
	add(b.pods, on(func(pod *corev1.Pod) {
		if ours(pod) {
			b.podQueue.Add(refOf(pod))
			b.touchClaim(pod)
		}
	}))
	add(b.pods, cache.ResourceEventHandlerFuncs{DeleteFunc: on(func(pod *corev1.Pod) { // Others may wait for its claim.
		if name := pod.Annotations[v1.AnnotationClaim]; ours(pod) && name != "" {
			b.touchPodsOf(pod.Namespace, name)
		}
	}).DeleteFunc})
	add(b.claims, on(func(claim *v1.GpuClaim) {
		b.noteSelector(claim)
		b.claimQueue.Add(types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name})
		b.touchPodsOf(claim.Namespace, claim.Name)
		b.touchGang(claim.Namespace, claim.Spec.GangRef)
	}))
	add(b.gangs, on(func(gang *v1.GpuGang) { b.touchGang(gang.Namespace, gang.Name) }))
	add(b.nodeStatuses, on(func(status *v1.GpuNodeStatus) { b.nodeQueue.Add(status.Name) }))
	add(nodes, on(func(node *corev1.Node) { b.nodeQueue.Add(node.Name) }))
	add(b.leases, on(func(lease *coordinationv1.Lease) { b.touchNodeOf(lease.Name) }))
	return failed
}

func ours(pod *corev1.Pod) bool { return pod.Spec.SchedulerName == v1.SchedulerName }

func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func (b *Bridge) touchClaim(pod *corev1.Pod) {
	if name := pod.Annotations[v1.AnnotationClaim]; name != "" {
		b.claimQueue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: name})
		if claim := b.claim(pod.Namespace, name); claim != nil {
			b.touchGang(pod.Namespace, claim.Spec.GangRef)
		}
	}
}

func (b *Bridge) podsOf(namespace, claim string) []*corev1.Pod {
	found, err := b.pods.GetIndexer().ByIndex(podsByClaim, namespace+"/"+claim)
	if err != nil {
		return nil
	}
	pods := make([]*corev1.Pod, 0, len(found))
	for _, one := range found {
		pods = append(pods, one.(*corev1.Pod))
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return compareText(string(a.UID), string(b.UID))
	})
	return pods
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (b *Bridge) touchPodsOf(namespace, claim string) {
	for _, pod := range b.podsOf(namespace, claim) {
		b.podQueue.Add(refOf(pod))
	}
}

func (b *Bridge) touchWaiting() {
	found, err := b.pods.GetIndexer().ByIndex(podsWaiting, podsWaiting)
	if err != nil {
		return
	}
	for _, one := range found {
		pod := one.(*corev1.Pod)
		b.podQueue.Add(refOf(pod))
		b.touchClaim(pod)
	}
}

func (b *Bridge) claim(namespace, name string) *v1.GpuClaim {
	found, exists, err := b.claims.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !exists {
		return nil
	}
	return found.(*v1.GpuClaim)
}

// trouble notes why nothing can be placed now, or with nil that this one is over. Pods that wait are told.
func (b *Bridge) trouble(name string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	b.mutex.Lock()
	changed := b.troubles[name] != text
	if text == "" {
		delete(b.troubles, name)
	} else {
		b.troubles[name] = text
	}
	b.mutex.Unlock()
	if changed {
		klog.InfoS("What keeps pods from being placed has changed", "what", name, "trouble", text)
		b.touchWaiting()
	}
}

// Trouble says why nothing can be placed now; empty: nothing is in the way.
func (b *Bridge) Trouble() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for _, name := range slices.Sorted(maps.Keys(b.troubles)) {
		if name != engineName { // The engine is asked when the cluster is in order.
			return b.troubles[name]
		}
	}
	return b.troubles[engineName]
}

// Run works until the context ends. It begins when upstream's informers are filled, which is so in the leader alone.
func (b *Bridge) Run(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), b.synced...) {
		return
	}
	defer b.podQueue.ShutDown()
	defer b.claimQueue.ShutDown()
	defer b.gangQueue.ShutDown()
	defer b.nodeQueue.ShutDown()
	go b.leases.RunWithContext(ctx)
	b.dynamic.Start(ctx.Done())
	for range workers {
		go work(ctx, b.podQueue, b.syncPod)
	}
	for _, informer := range []cache.SharedIndexInformer{b.claims, b.gangs, b.nodeStatuses, b.leases} {
		cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
	}
	for _, name := range []string{claimsResource.GroupResource().String(), gangsResource.GroupResource().String(),
		nodesResource.GroupResource().String(), leasesName} {
		b.trouble(name, nil)
	}
	go work(ctx, b.claimQueue, b.syncClaim)
	go work(ctx, b.gangQueue, b.syncGang)
	b.follow(ctx)
}

// The engine's jobs, and what is left over, until the context ends.
func (b *Bridge) follow(ctx context.Context) {
	poll, collect := time.NewTicker(pollEvery), time.NewTicker(collectEvery)
	defer poll.Stop()
	defer collect.Stop()
	b.askEngine(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
			b.askEngine(ctx)
		case <-collect.C:
			if b.isRecovered() {
				b.collect(ctx)
			}
		}
	}
}

func (b *Bridge) isRecovered() bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.recovered
}

func (b *Bridge) askEngine(ctx context.Context) {
	var err error
	if !b.isRecovered() {
		if err = b.recover(ctx); err == nil {
			go b.watchJobs(ctx)
			go work(ctx, b.nodeQueue, func(ctx context.Context, name string) error { return b.syncNode(ctx, name) })
		}
	} else {
		err = b.lookAtJobs(ctx)
	}
	if err != nil {
		if engine.Away(err) {
			err = fmt.Errorf("the GPU engine does not answer, nothing is bound until it does: %s", engine.Reason(err))
		} else {
			err = fmt.Errorf("nothing is bound: %s", engine.Reason(err))
		}
	}
	b.trouble(engineName, err)
}

// A call that fails is tried again, later each time.
func work[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T],
	sync func(context.Context, T) error) {
	for {
		item, down := queue.Get()
		if down {
			return
		}
		if err := sync(ctx, item); err != nil && ctx.Err() == nil {
			klog.V(2).InfoS("Trying again", "item", item, "reason", err)
			queue.AddRateLimited(item)
		} else {
			queue.Forget(item)
		}
		queue.Done(item)
	}
}
