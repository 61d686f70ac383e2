package bridge

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "gpusched/kube/api/v1"
	"gpusched/kube/engine/pb"
)

// PodRef names one pod for ever: a later pod of the same name has another uid.
type PodRef struct {
	Namespace, Name string
	UID             types.UID
}

func refOf(pod *corev1.Pod) PodRef { return PodRef{pod.Namespace, pod.Name, pod.UID} }

// record is the engine's decision about one pod, as it stands in the pod's annotation. It outlives this program.
type record struct {
	Job      uint64   `json:"job"`
	Attempt  uint32   `json:"attempt"`
	Member   uint32   `json:"member,omitempty"`
	PlacedAt int64    `json:"placedAt"` // As the engine ordered it, ns.
	Node     string   `json:"node"`
	Devices  []device `json:"devices"`
}

type device struct {
	ID         int32  `json:"id"`
	UUID       string `json:"uuid"`
	Generation uint32 `json:"generation"`
}

func recordOf(node string, order *pb.StartAttempt) record {
	r := record{Job: order.Key.GetJob(), Attempt: order.Key.GetAttempt(), Member: order.Key.GetMember(),
		PlacedAt: order.PlacedAtNs, Node: node}
	for _, granted := range order.Devices {
		r.Devices = append(r.Devices, device{ID: int32(granted.Index), UUID: granted.Uuid, Generation: granted.Generation})
	}
	slices.SortFunc(r.Devices, func(a, b device) int { return int(a.ID - b.ID) })
	return r
}

// Nil: the pod has no record, or none that can be read.
func readRecord(pod *corev1.Pod) *record {
	text, ok := pod.Annotations[v1.AnnotationAttempt]
	if !ok {
		return nil
	}
	var r record
	if json.Unmarshal([]byte(text), &r) != nil || r.Job == 0 {
		return nil
	}
	return &r
}

// The record by which the pod was bound; nil: it was bound otherwise, or not at all.
func bindingOf(pod *corev1.Pod) *record {
	if r := readRecord(pod); r != nil && r.Node == pod.Spec.NodeName {
		return r
	}
	return nil
}

func (r *record) text() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // Numbers and words: it never fails.
	}
	return string(text)
}

func (r *record) key() *pb.AttemptKey {
	return &pb.AttemptKey{Job: r.Job, Attempt: r.Attempt, Member: r.Member}
}

func (r *record) same(key *pb.AttemptKey, placedAt int64) bool {
	return r.Job == key.GetJob() && r.Attempt == key.GetAttempt() && r.Member == key.GetMember() && r.PlacedAt == placedAt
}

func (r *record) job() string { return fmt.Sprintf("job-%d", r.Job) }

func (r *record) ids() []int32 {
	ids := make([]int32, 0, len(r.Devices))
	for _, d := range r.Devices {
		ids = append(ids, d.ID)
	}
	return ids
}

// "0,1": what CUDA_VISIBLE_DEVICES takes.
func (r *record) list() string {
	words := make([]string, 0, len(r.Devices))
	for _, d := range r.Devices {
		words = append(words, strconv.Itoa(int(d.ID)))
	}
	return strings.Join(words, ",")
}

// stage of an attempt, in the order of its life.
type stage int

const (
	placed  stage = iota // The engine chose; the pod is not bound.
	binding              // PreBind has begun.
	bound                // The pod is on its node.
	leaving              // It will not be bound: what was prepared is taken back.
)

// decision names the engine's decision.
func (r *record) decision() string {
	return fmt.Sprintf("%s/%d/%d/%d", r.job(), r.Attempt, r.Member, r.PlacedAt)
}

// Whether the pod's record is of this attempt.
func (r *record) isOf(pod *corev1.Pod) bool {
	other := readRecord(pod)
	return other != nil && r.same(other.key(), other.PlacedAt)
}

// attempt is a record and how far it is.
type attempt struct {
	record
	ref   PodRef
	claim string // Its name.
	stage stage
	// Why it leaves, and whether the engine wanted that.
	reason  string
	ordered bool
	// stopping: the engine wants the bound pod to end.
	stopping bool
	// A gang's name; whether its members begin together, by the engine's word, and not at once.
	gang    string
	barrier bool
	// For those: it passed upstream's rules and waits in Permit; its record and leases are there; the engine said go.
	held, prepared, released bool
	told                     bool // Started is reported.
	tries                    int  // How often the pod was put into the scheduling queue.
}
