package engine

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/crypto/blake2b"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"k8s.io/klog/v2"

	"gpusched/kube/engine/pb"
)

const (
	handshake      = 2
	nonceBytes     = 32
	reconnectAfter = time.Second
	repeatAfter    = 5 * time.Second
	heartbeatMin   = 100 * time.Millisecond
	outgoingMax    = 1024
)

var errSlow = errors.New("the engine takes messages too slowly")

// Host answers for the nodes what the engine asks. Its methods are called from the nodes' goroutines, one at a time for
// each node, and must not wait for the engine.
type Host interface {
	// Registration says what the node is now: devices, labels, attempts. Called at each connection.
	Registration(node string) *pb.Register
	// Start is the engine's order to start an attempt. It may be repeated.
	Start(node string, order *pb.StartAttempt)
	// Go says that every member of a gang is prepared: the attempt may begin. It may be repeated.
	Go(node string, order *pb.GoAttempt)
	// Stop is the engine's order to end one. It may be repeated.
	Stop(node string, order *pb.StopAttempt)
	// Holder says what holds a device that the engine asks about; empty: nothing does.
	Holder(node string, device *pb.GrantedDevice) string
}

// Node is the engine's connection to one Kubernetes node. Its methods may be called from any goroutine.
type Node struct {
	name    string
	host    Host
	client  *Client
	process uint64

	mutex    sync.Mutex
	outgoing chan *pb.AgentMessage // Messages for the connection that lives; nil: none.
	drop     context.CancelCauseFunc
	next     uint64
	reports  map[uint64]*pb.Report // Not acknowledged yet.
}

// NewNode makes a node; Run serves it.
func (c *Client) NewNode(name string, host Host) *Node {
	var random [8]byte
	rand.Read(random[:])
	return &Node{name: name, host: host, client: c, process: binary.LittleEndian.Uint64(random[:]),
		reports: map[uint64]*pb.Report{}}
}

// Connected says whether the engine has accepted the node and its connection lives.
func (n *Node) Connected() bool {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return n.outgoing != nil
}

// Register makes the node tell the engine again what it is, by a new connection.
func (n *Node) Register() {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.drop != nil {
		n.drop(errors.New("the node has changed"))
	}
}

// Report tells the engine what happened; it is repeated until the engine has made it durable. The report is the node's
// from then on. A report that is under way already is not made a second one.
func (n *Node) Report(report *pb.Report) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	for id, known := range n.reports {
		if condition := report.GetCondition(); condition != nil && known.GetCondition().GetIndex() == condition.Index &&
			known.GetCondition() != nil {
			delete(n.reports, id) // The newer condition counts.
			continue
		}
		report.Id = id
		if proto.Equal(known, report) {
			return
		}
	}
	n.next++
	report.Id = n.next
	n.reports[report.Id] = report
	n.send(&pb.AgentMessage{Body: &pb.AgentMessage_Report{Report: report}})
}

// With the mutex held. A connection that does not keep up is dropped: reports are repeated on the next one.
func (n *Node) send(message *pb.AgentMessage) {
	if n.outgoing == nil {
		return
	}
	select {
	case n.outgoing <- message:
	default:
		n.drop(errSlow)
	}
}

// Run keeps the node connected until the context ends.
func (n *Node) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := n.serve(ctx)
		if ctx.Err() == nil {
			klog.InfoS("The engine's connection for the node ended; trying again", "node", n.name, "reason", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(reconnectAfter):
		}
	}
}

// proof is BLAKE2b-256 of the label and the nonces, keyed by the token: what each side shows of it. A key has 64 bytes at
// most; a longer token's digest is the key.
func proof(token, label string, nonces ...[]byte) ([]byte, error) {
	if token == "" {
		return nil, errors.New("the token is empty: it proves nothing")
	}
	key := []byte(token)
	if len(key) > blake2b.Size {
		digest := blake2b.Sum512(key)
		key = digest[:]
	}
	hash, err := blake2b.New256(key)
	if err != nil {
		return nil, err
	}
	hash.Write([]byte(label))
	for _, nonce := range nonces {
		hash.Write(nonce)
	}
	return hash.Sum(nil), nil
}

type connection = grpc.BidiStreamingClient[pb.AgentMessage, pb.SchedulerMessage]

func receive(stream connection) (*pb.SchedulerMessage, error) {
	message, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	if refused := message.GetRefused(); refused != nil {
		return nil, fmt.Errorf("the engine refuses the node: %s: %s", refused.Code, refused.Message)
	}
	return message, nil
}

func ask(stream connection, message *pb.AgentMessage) (*pb.SchedulerMessage, error) {
	if err := stream.Send(message); err != nil {
		return nil, err
	}
	return receive(stream)
}

// Each side proves to the other that it knows the token.
func (n *Node) greet(stream connection) error {
	token, err := secret(n.client.options.TokenFile)
	if err != nil {
		return err
	}
	nonce := make([]byte, nonceBytes)
	rand.Read(nonce)
	message, err := ask(stream, &pb.AgentMessage{Body: &pb.AgentMessage_Hello{Hello: &pb.Hello{
		NodeName: n.name, Nonce: nonce, Version: "gpu-scheduler-kube", Handshake: handshake}}})
	if err != nil {
		return err
	}
	challenge := message.GetChallenge()
	if challenge == nil || challenge.Handshake != handshake || len(challenge.Nonce) != nonceBytes {
		return errors.New("the engine is too old: it does not know the handshake of this program")
	}
	mine, err := proof(token, "gpusched-agent-2", nonce, challenge.Nonce)
	if err != nil {
		return err
	}
	theirs, err := proof(token, "gpusched-scheduler-2", nonce, challenge.Nonce)
	if err != nil {
		return err
	}
	message, err = ask(stream, &pb.AgentMessage{Body: &pb.AgentMessage_Prove{Prove: &pb.Prove{Proof: mine}}})
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(message.GetProven().GetProof(), theirs) != 1 {
		return errors.New("the engine does not know the token: it is not the engine that this program belongs to")
	}
	return nil
}

func (n *Node) serve(parent context.Context) error {
	ctx, drop := context.WithCancelCause(parent)
	defer drop(nil)
	stream, err := n.client.nodes.Connect(ctx)
	if err != nil {
		return err
	}
	if err := n.greet(stream); err != nil {
		return err
	}
	register := n.host.Registration(n.name)
	register.NodeName, register.Process = n.name, n.process
	register.Attempts = append(register.Attempts, n.ended()...)
	message, err := ask(stream, &pb.AgentMessage{Body: &pb.AgentMessage_Register{Register: register}})
	if err != nil {
		return err
	}
	registered := message.GetRegistered()
	if registered == nil {
		return errors.New("the engine did not answer the registration")
	}
	outgoing := make(chan *pb.AgentMessage, outgoingMax)
	n.mutex.Lock()
	n.outgoing, n.drop = outgoing, drop
	n.mutex.Unlock()
	defer func() {
		n.mutex.Lock()
		n.outgoing, n.drop = nil, nil
		n.mutex.Unlock()
	}()
	heartbeat := max(time.Duration(registered.HeartbeatMs)*time.Millisecond, heartbeatMin)
	go n.write(ctx, stream, outgoing, heartbeat, drop)
	for {
		if message, err = receive(stream); err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		n.obey(message)
	}
}

// The one goroutine that sends on the stream.
func (n *Node) write(ctx context.Context, stream connection, outgoing <-chan *pb.AgentMessage, every time.Duration,
	drop context.CancelCauseFunc) {
	heartbeat, again := time.NewTicker(every), time.NewTicker(repeatAfter)
	defer heartbeat.Stop()
	defer again.Stop()
	messages := n.unacknowledged()
	for sequence := uint64(0); ; {
		for _, message := range messages {
			if err := stream.Send(message); err != nil {
				drop(err)
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case message := <-outgoing:
			messages = []*pb.AgentMessage{message}
		case <-again.C:
			messages = n.unacknowledged()
		case <-heartbeat.C:
			sequence++
			messages = []*pb.AgentMessage{{Body: &pb.AgentMessage_Heartbeat{Heartbeat: &pb.Heartbeat{Sequence: sequence}}}}
		}
	}
}

// In the order in which things happened: a device is released after its attempt has ended.
func (n *Node) unacknowledged() []*pb.AgentMessage {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	messages := make([]*pb.AgentMessage, 0, len(n.reports))
	for _, report := range n.reports {
		messages = append(messages, &pb.AgentMessage{Body: &pb.AgentMessage_Report{Report: report}})
	}
	slices.SortFunc(messages, func(a, b *pb.AgentMessage) int {
		return int(int64(a.GetReport().Id) - int64(b.GetReport().Id))
	})
	return messages
}

// Attempts whose end the engine has not acknowledged: it must not take them for lost.
func (n *Node) ended() []*pb.AttemptOnNode {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	var attempts []*pb.AttemptOnNode
	for _, report := range n.reports {
		if ended := report.GetEnded(); ended != nil {
			attempts = append(attempts, &pb.AttemptOnNode{Key: ended.Key, PlacedAtNs: ended.PlacedAtNs, Ended: true})
		}
	}
	return attempts
}

// HasEnded says whether the end of this attempt is reported and the engine has not acknowledged it: its orders about
// the attempt are older than that.
func (n *Node) HasEnded(key *pb.AttemptKey, placedAt int64) bool {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	for _, report := range n.reports {
		if ended := report.GetEnded(); ended != nil && ended.PlacedAtNs == placedAt && proto.Equal(ended.Key, key) {
			return true
		}
	}
	return false
}

func (n *Node) answer(message *pb.AgentMessage) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.send(message)
}

func (n *Node) obey(message *pb.SchedulerMessage) {
	const elsewhere = "a pod's output and files are read with kubectl"
	switch body := message.Body.(type) {
	case *pb.SchedulerMessage_Ack:
		n.mutex.Lock()
		for _, id := range body.Ack.ReportIds {
			delete(n.reports, id)
		}
		n.mutex.Unlock()
	case *pb.SchedulerMessage_Start:
		n.host.Start(n.name, body.Start)
	case *pb.SchedulerMessage_Go:
		n.host.Go(n.name, body.Go)
	case *pb.SchedulerMessage_Stop:
		n.host.Stop(n.name, body.Stop)
	case *pb.SchedulerMessage_CheckRelease:
		for _, device := range body.CheckRelease.Devices {
			n.checkRelease(device)
		}
	case *pb.SchedulerMessage_ReadLog:
		n.answer(&pb.AgentMessage{Body: &pb.AgentMessage_LogChunk{LogChunk: &pb.LogChunk{
			Request: body.ReadLog.Request, Error: elsewhere, Code: "log_not_found", AtEnd: true}}})
	case *pb.SchedulerMessage_ReadFile:
		n.answer(&pb.AgentMessage{Body: &pb.AgentMessage_FileChunk{FileChunk: &pb.FileChunk{
			Request: body.ReadFile.Request, Code: "log_not_found", Error: elsewhere, AtEnd: true}}})
	case *pb.SchedulerMessage_OpenSession:
		n.answer(&pb.AgentMessage{Body: &pb.AgentMessage_SessionOutput{SessionOutput: &pb.SessionOutput{
			Session: body.OpenSession.Session, Ended: true, Error: "use kubectl exec for a pod"}}})
	}
}

func (n *Node) checkRelease(device *pb.GrantedDevice) {
	if holder := n.host.Holder(n.name, device); holder != "" {
		n.Report(&pb.Report{What: &pb.Report_Draining{Draining: &pb.Draining{Index: device.Index,
			Generation: device.Generation, ShareOf: device.ShareOf, Evidence: holder}}})
		return
	}
	n.Report(Released(device.Index, device.Generation))
}

// Released reports that nothing is on the device any more.
func Released(index, generation uint32) *pb.Report {
	return &pb.Report{What: &pb.Report_Released{Released: &pb.Released{Index: index, Generation: generation}}}
}
