package leases

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	raceWorkers = 8
	raceTries   = 20 // Of each of the two, before a race counts as one that nobody wins.
)

// racer is one of two schedulers, with a pod in a namespace of its own.
type racer struct {
	store Store
	pod   *corev1.Pod
}

func racerIn(t *testing.T, kubeconfig, namespace string) racer {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = -1, -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return racer{store: Store{Client: client}, pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "pod", Namespace: namespace, UID: types.UID("pod-of-" + namespace)}}}
}

// race lets both take the devices until one has them, and returns who has and how often both were refused.
func race(ctx context.Context, racers [2]racer, node string, ids []int32) (winner, draws int, err error) {
	for range raceTries {
		var won [2]bool
		var failed [2]error
		var both sync.WaitGroup
		for i := range racers {
			both.Go(func() {
				err := racers[i].store.Take(ctx, &Decision{Pod: racers[i].pod, Node: node, IDs: ids, Name: "decision",
					IsCurrent: func(context.Context) (bool, error) { return true, nil }})
				var taken *TakenError
				won[i] = err == nil
				if err != nil && !errors.As(err, &taken) {
					failed[i] = err
				}
			})
		}
		both.Wait()
		switch err := errors.Join(failed[0], failed[1]); {
		case won[0] && won[1]:
			return 0, draws, fmt.Errorf("%s: both have the devices", node)
		case err != nil:
			return 0, draws, err
		case won[0]:
			return 0, draws, nil
		case won[1]:
			return 1, draws, nil
		}
		draws++
		time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
	}
	return 0, draws, fmt.Errorf("%s: nobody wins", node)
}

// Two schedulers on a real API server race for the same devices, from two namespaces: one has them each time, and the
// other has none. tests/kube/test_races.py says where the API server is and how many races there are.
func TestOfTwoWhoRaceForDevicesOneHasThem(t *testing.T) {
	kubeconfig := os.Getenv("GPUSCHED_RACE_KUBECONFIG")
	if kubeconfig == "" {
		t.Skip("no API server is named")
	}
	races, err := strconv.Atoi(os.Getenv("GPUSCHED_RACES"))
	if err != nil {
		t.Fatal(err)
	}
	racers := [2]racer{racerIn(t, kubeconfig, "race-a"), racerIn(t, kubeconfig, "race-b")}
	var next, drawn atomic.Int64
	var wins [2]atomic.Int64
	var workers sync.WaitGroup
	began := time.Now()
	for worker := range raceWorkers {
		workers.Go(func() {
			node := fmt.Sprintf("node-%d", worker)
			for next.Add(1) <= int64(races) && !t.Failed() {
				ids := []int32{0, 1}
				winner, draws, err := race(t.Context(), racers, node, ids)
				if err != nil {
					t.Error(err)
					return
				}
				wins[winner].Add(1)
				drawn.Add(int64(draws))
				for i, one := range racers {
					for _, id := range ids {
						_, err := one.store.Client.CoordinationV1().Leases(one.pod.Namespace).Get(t.Context(), Name(node, id),
							metav1.GetOptions{})
						if (err == nil) != (i == winner) {
							t.Errorf("%s/%d: after the race the loser holds it, or the winner does not: %v", node, id, err)
						}
					}
				}
				if err := racers[winner].store.Drop(t.Context(), racers[winner].pod.Namespace, racers[winner].pod.UID, node,
					ids, "decision"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d races: %d and %d won, both were refused %d times, %s", races, wins[0].Load(), wins[1].Load(), drawn.Load(),
		time.Since(began).Round(time.Millisecond))
	if won := wins[0].Load() + wins[1].Load(); won != int64(races) {
		t.Errorf("%d races were won, not %d", won, races)
	}
}
