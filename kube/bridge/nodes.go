package bridge

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "gpusched/kube/api/v1"
	"gpusched/kube/engine"
	"gpusched/kube/engine/pb"
	"gpusched/kube/leases"
)

const (
	devicesMax = 64 // The engine counts the devices of a node in one word.
	labelsMax  = 62 // The engine keeps 64 of a node: these, the mark of this program, and the node's name.
	goneFor    = time.Minute
	nodeGone   = "the cluster has no such node any more"
)

// labelKubernetes is on each node that this program registers.
const labelKubernetes = "gpu.scheduling/kubernetes"

// inventory is what the engine is told of a node.
type inventory struct {
	devices  []*pb.Device // At the index that is their id.
	links    []int64      // Of each two of them, as the engine counts; empty: not known.
	labels   map[string]string
	cpuMilli int64
	memoryMB int64
}

type node struct {
	link  *engine.Node
	told  inventory
	stop  context.CancelFunc
	asked map[uint32]uint32 // Devices that something held when the engine asked, and their generations.
	gone  time.Time         // Since when the cluster has no such node; zero: it has.
}

// Makes the engine know the node as it is now.
func (b *Bridge) syncNode(ctx context.Context, name string) error {
	object, err := b.nodeLister.Get(name)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	var status *v1.GpuNodeStatus
	if found, exists, err := b.nodeStatuses.GetStore().GetByKey(name); err == nil && exists {
		status = found.(*v1.GpuNodeStatus)
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	known := b.nodes[name]
	if known != nil {
		b.releaseAsked(name, known)
	}
	if object == nil || status == nil {
		b.lose(known)
		return nil
	}
	now := b.inventoryOf(object, status)
	if len(now.devices) == 0 && known == nil {
		return nil // The agent has not looked yet.
	}
	if known == nil {
		b.connect(ctx, name, now)
		return nil
	}
	known.gone = time.Time{}
	if !sameMachine(&known.told, &now) {
		known.told = now
		known.link.Register()
		return nil
	}
	known.told.cpuMilli, known.told.memoryMB = now.cpuMilli, now.memoryMB
	b.tellConditions(known, now.devices)
	return nil
}

// With the mutex held.
func (b *Bridge) connect(parent context.Context, name string, now inventory) {
	ctx, stop := context.WithCancel(parent)
	n := &node{link: b.options.Engine.NewNode(name, b), told: now, stop: stop, asked: map[uint32]uint32{}}
	b.nodes[name] = n
	go n.link.Run(ctx)
}

// A node that is gone keeps its connection for a while: the engine may be placing something there at this moment, and the
// ends of its pods are still to be reported. With the mutex held.
func (b *Bridge) lose(known *node) {
	if known == nil || !known.gone.IsZero() {
		return
	}
	known.gone = time.Now()
	missing := make([]*pb.Device, 0, len(known.told.devices))
	for _, d := range known.told.devices {
		missing = append(missing, deviceOffer(d.Uuid, d.Model, d.MemoryMb, missingDevice, nodeGone))
	}
	b.tellConditions(known, missing)
}

// Lets nodes go that are gone for long and have no job.
func (b *Bridge) collectNodes(jobs []*pb.Job) {
	busy := map[string]bool{}
	for _, one := range jobs {
		for _, name := range nodesOfJob(one) {
			busy[name] = true
		}
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for _, a := range b.attempts {
		busy[a.Node] = true
	}
	for name, n := range b.nodes {
		if !busy[name] && !n.gone.IsZero() && time.Since(n.gone) > goneFor {
			n.stop()
			delete(b.nodes, name)
		}
	}
}

// With the mutex held.
func (b *Bridge) tellConditions(n *node, now []*pb.Device) {
	for i, d := range now {
		if told := n.told.devices[i]; told.Condition == d.Condition && told.Detail == d.Detail {
			continue
		}
		n.link.Report(&pb.Report{What: &pb.Report_Condition{Condition: &pb.ConditionChanged{Index: uint32(i),
			Condition: d.Condition, Detail: d.Detail}}})
	}
	n.told.devices = now
}

// A node with other devices or labels is registered again; conditions alone are reported.
func sameMachine(a, b *inventory) bool {
	return maps.Equal(a.labels, b.labels) && slices.Equal(a.links, b.links) && slices.EqualFunc(a.devices, b.devices, func(x, y *pb.Device) bool {
		return x.Uuid == y.Uuid && x.Model == y.Model && x.MemoryMb == y.MemoryMb
	})
}

const (
	healthyDevice = pb.DeviceCondition_DEVICE_CONDITION_OK
	brokenDevice  = pb.DeviceCondition_DEVICE_CONDITION_UNHEALTHY
	missingDevice = pb.DeviceCondition_DEVICE_CONDITION_MISSING
)

func deviceOffer(uuid, model string, memoryMB int64, condition pb.DeviceCondition, detail string) *pb.Device {
	return &pb.Device{Uuid: uuid, Model: model, MemoryMb: memoryMB, Condition: condition, Detail: detail}
}

// labelPrefixFeatures begins the labels that Node Feature Discovery puts on nodes by the dozen.
const labelPrefixFeatures = "feature.node.kubernetes.io/"

// The labels that the engine is told: all; of too many those first that claims select nodes by, and features last.
func labelsOf(all map[string]string, selected map[string]bool) map[string]string {
	if len(all) <= labelsMax {
		return all
	}
	rank := func(key string) int {
		switch {
		case selected[key]:
			return 0
		case !strings.HasPrefix(key, labelPrefixFeatures):
			return 1
		}
		return 2
	}
	keys := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		if order := rank(a) - rank(b); order != 0 {
			return order
		}
		return compareText(a, b)
	})
	told := map[string]string{}
	for _, key := range keys[:labelsMax] {
		told[key] = all[key]
	}
	return told
}

// Notes by which labels the claim selects nodes. The engine is told of labels that it may not know yet.
func (b *Bridge) noteSelector(claim *v1.GpuClaim) {
	if claim.Spec.Selector == nil {
		return
	}
	b.mutex.Lock()
	before := len(b.selected)
	for key := range claim.Spec.Selector.MatchLabels {
		b.selected[key] = true
	}
	changed := len(b.selected) > before
	b.mutex.Unlock()
	if changed {
		for _, object := range b.nodeStatuses.GetStore().List() {
			b.nodeQueue.Add(object.(*v1.GpuNodeStatus).Name)
		}
	}
}

// Devices are at the index that is their id, so that ids mean the same in claims, leases and the engine. With the mutex
// held.
func (b *Bridge) inventoryOf(object *corev1.Node, status *v1.GpuNodeStatus) inventory {
	now := inventory{labels: map[string]string{labelKubernetes: "true"},
		cpuMilli: object.Status.Allocatable.Cpu().MilliValue(), memoryMB: object.Status.Allocatable.Memory().Value() >> 20}
	maps.Copy(now.labels, labelsOf(object.Labels, b.selected))
	count := 0
	byID := map[int]*v1.NodeDevice{}
	for i := range status.Status.Devices {
		d := &status.Status.Devices[i]
		if d.ID >= 0 && d.ID < devicesMax {
			byID[int(d.ID)] = d
			count = max(count, int(d.ID)+1)
		}
	}
	for id := range count {
		d := byID[id]
		if d == nil {
			now.devices = append(now.devices, deviceOffer(b.deviceName("absent", status.Name, id), "", 0, missingDevice,
				"the node has no device of this id"))
			continue
		}
		uuid := d.UUID
		if uuid == "" {
			uuid = b.deviceName("gpu", status.Name, id)
		}
		condition, detail := healthyDevice, ""
		if d.Health != v1.Healthy {
			condition, detail = brokenDevice, d.Message
			if detail == "" {
				detail = fmt.Sprintf("the node's agent says: %s", d.Health)
			}
		} else if holder := b.foreign(status.Name, int32(id)); holder != "" {
			condition, detail = brokenDevice, holder
		}
		now.devices = append(now.devices, deviceOffer(uuid, d.Model, d.MemoryMB, condition, detail))
	}
	now.links = linksOf(byID, count)
	return now
}

// Kinds of links and what is assumed of the slowest one, by the node protocol.
const (
	linkBase    = 16
	systemLink  = 1
	nvLink      = 6
	systemSpeed = 10 // GB/s in one direction.
)

// How each two devices are linked: those of one island by what the slower one has, all others across the system. None:
// no device has an island.
func linksOf(devices map[int]*v1.NodeDevice, count int) []int64 {
	var links []int64
	known := false
	for i := range count {
		for j := i + 1; j < count; j++ {
			a, b := devices[i], devices[j]
			link := int64(systemSpeed*linkBase + systemLink)
			if a != nil && b != nil && a.Island != "" && a.Island == b.Island {
				link = int64(min(a.BandwidthGBps, b.BandwidthGBps)/2)*linkBase + nvLink // These count both directions.
				known = true
			}
			links = append(links, link)
		}
	}
	if !known {
		return nil
	}
	return links
}

func (b *Bridge) deviceName(kind, node string, id int) string {
	return kind + "-" + b.cluster + "-" + node + "-" + strconv.Itoa(id)
}

// Who else has a lease of the device; empty: nobody. With the mutex held.
func (b *Bridge) foreign(name string, id int32) string {
	for _, lease := range b.leasesOf(name, id) {
		if !b.has(leases.Holder(lease), name, id) {
			return fmt.Sprintf("lease %s/%s is held by %q, not by a pod of this scheduler", lease.Namespace, lease.Name,
				leases.Holder(lease))
		}
	}
	return ""
}

// Whether this pod's attempt has the device. With the mutex held.
func (b *Bridge) has(uid, name string, id int32) bool {
	for _, a := range b.attempts {
		if string(a.ref.UID) != uid || a.Node != name {
			continue
		}
		for _, d := range a.Devices {
			if d.ID == id {
				return true
			}
		}
	}
	return false
}

// The node whose device a lease holds.
func (b *Bridge) touchNodeOf(lease string) {
	rest := strings.TrimPrefix(lease, "gpu-")
	cut := strings.LastIndexByte(rest, '-')
	if cut <= 0 || rest == lease {
		return
	}
	if _, exists, err := b.nodeStatuses.GetStore().GetByKey(rest[:cut]); err == nil && exists {
		b.nodeQueue.Add(rest[:cut])
	}
}
