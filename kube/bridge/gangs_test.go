package bridge

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"

	v1 "gpusched/kube/api/v1"
	"gpusched/kube/engine/pb"
)

// permit notes what upstream's scheduler is told.
type permit struct{ rejected map[types.UID]string }

func (permit) Activate(klog.Logger, map[string]*corev1.Pod) {}
func (permit) Allow(types.UID)                              {}
func (p permit) Reject(uid types.UID, reason string)        { p.rejected[uid] = reason }

func newBridge(t *testing.T) (*Bridge, permit) {
	client, queue := fake.NewClientset(), permit{map[types.UID]string{}}
	b, err := New(Options{Client: client, Dynamic: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()),
		Shared: informers.NewSharedInformerFactory(client, 0), Queue: queue})
	if err != nil {
		t.Fatal(err)
	}
	return b, queue
}

func TestAMemberIsHeldForTheTimeOfItsGangAndSaysThatTheOthersWereMissing(t *testing.T) {
	b, queue := newBridge(t)
	for name, seconds := range map[string]int32{"short": 7, "none": 0, "long": 5000} {
		gang := &v1.GpuGang{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		gang.Spec.TimeoutSeconds = seconds
		if err := b.gangs.GetStore().Add(gang); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]time.Duration{"short": 7 * time.Second, "none": 15 * time.Minute,
		"long": 15 * time.Minute, "deleted": 15 * time.Minute} {
		uid := types.UID(name)
		b.attempts[uid] = &attempt{record: record{Job: 1, Node: "n"}, ref: PodRef{"ns", name, uid}, gang: name, barrier: true}
		if limit, err := b.Hold(uid, "n"); err != nil || limit != want {
			t.Errorf("%s: %v %v", name, limit, err)
		}
		if _, err := b.Hold(uid, "other"); err == nil {
			t.Errorf("%s: held on a node that the engine did not choose", name)
		}
	}
	a := b.attempts["short"]
	b.Refused("short", "another decision", "late")
	if a.stage != placed {
		t.Error("the end of an earlier scheduling cycle ends this attempt")
	}
	b.Refused("short", a.decision(), "timeout")
	if a.stage != leaving || !strings.Contains(a.reason, "did not pass in time") || queue.rejected["short"] != a.reason {
		t.Error(a.stage, a.reason, queue.rejected)
	}
	if _, err := b.Hold("short", "n"); err == nil {
		t.Error("held though it leaves")
	}
}

func TestAPodThatIsNoMemberIsNotHeld(t *testing.T) {
	b, _ := newBridge(t)
	b.attempts["pod"] = &attempt{record: record{Job: 1, Node: "n"}}
	if limit, err := b.Hold("pod", "n"); err != nil || limit != 0 {
		t.Error(limit, err)
	}
}

func orderOf(rank uint32, parts ...uint32) *pb.StartAttempt {
	order := &pb.StartAttempt{Key: &pb.AttemptKey{Job: 1, Attempt: 1, Member: rank}, Gang: &pb.Gang{}}
	for _, part := range parts {
		order.Gang.Members = append(order.Gang.Members, &pb.Gang_Member{Part: part})
	}
	return order
}

func TestAnOrderIsForTheMemberOfItsPartAndPlace(t *testing.T) {
	of := func(uid string, part, rank int) member {
		return member{ref: PodRef{UID: types.UID(uid)}, part: part, rank: rank}
	}
	fresh := &job{members: []member{of("leader", 0, -1), of("w0", 1, -1), of("w1", 1, -1)}}
	for rank, want := range []types.UID{"w0", "leader", "w1"} {
		if got := fresh.memberOf(orderOf(uint32(rank), 1, 0, 1)); got != want {
			t.Errorf("%d: %s", rank, got)
		}
	}
	// After a start of this program, records say who is who; of a member without one nothing is guessed.
	recovered := &job{members: []member{of("a", -1, 2), of("b", -1, 0)}}
	for rank, want := range []types.UID{"b", "", "a"} {
		if got := recovered.memberOf(orderOf(uint32(rank), 0, 0, 0)); got != want {
			t.Errorf("%d: %s", rank, got)
		}
	}
	if got := fresh.memberOf(&pb.StartAttempt{Key: &pb.AttemptKey{Job: 1}}); got != "leader" {
		t.Error("a gang of one has no list of members:", got)
	}
}
