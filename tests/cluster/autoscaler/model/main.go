// Feeds samples to upstream's own model and prints what it recommends: the measure that ours is held to.
//
//	model replay < EVENTS   numbers after the events on standard input, see `replay`
//	model bench             speed and size on the mix of tests/model/mix.rs
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	vpatypes "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/logic"
	vpamodel "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
)

const interval = 24 * time.Hour

func main() {
	day := interval
	vpamodel.InitializeAggregationsConfig(vpamodel.NewAggregationsConfig(day, 8, day, day, 1.2, 100*1024*1024))
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: model replay|bench")
		os.Exit(2)
	}
	switch os.Args[1] {
	case "replay":
		replay()
	case "bench":
		bench()
	default:
		fmt.Fprintln(os.Stderr, "usage: model replay|bench")
		os.Exit(2)
	}
}

func defaults() logic.RecommendationConfig {
	return logic.RecommendationConfig{
		SafetyMarginFraction: 0.15, PodMinCPUMillicores: 25, PodMinMemoryMb: 250,
		TargetCPUPercentile: 0.9, LowerBoundCPUPercentile: 0.5, UpperBoundCPUPercentile: 0.95, ConfidenceIntervalCPU: interval,
		TargetMemoryPercentile: 0.9, LowerBoundMemoryPercentile: 0.5, UpperBoundMemoryPercentile: 0.95, ConfidenceIntervalMemory: interval,
	}
}

// container is one container of a VPA: an aggregate, and a state for each of its pods.
type container struct {
	aggregate *vpamodel.AggregateContainerState
	pods      map[string]*vpamodel.ContainerState
	// What came back from a checkpoint: upstream keeps it apart.
	initial *vpamodel.AggregateContainerState
}

func newContainer() *container {
	return &container{aggregate: vpamodel.NewAggregateContainerState(), pods: map[string]*vpamodel.ContainerState{}}
}

// pooled is what a pass recommends from, and what it saves.
func (c *container) pooled() *vpamodel.AggregateContainerState {
	pool := vpamodel.NewAggregateContainerState()
	pool.MergeContainerState(c.aggregate)
	if c.initial != nil {
		pool.MergeContainerState(c.initial)
	}
	return pool
}

func (c *container) pod(name string) *vpamodel.ContainerState {
	if c.pods[name] == nil {
		c.pods[name] = vpamodel.NewContainerState(nil, c.aggregate)
	}
	return c.pods[name]
}

func (c *container) add(pod string, at time.Time, amount int64, resource vpamodel.ResourceName) bool {
	return c.pod(pod).AddSample(&vpamodel.ContainerUsageSample{MeasureStart: at, Usage: vpamodel.ResourceAmount(amount), Resource: resource})
}

// event is one line of a case: {"do":"cpu|memory|oom","pod":"p","at":unix nanoseconds,"amount":n}. A line with
// "do":"end" and the flags in "config" prints the numbers and begins the next case. One with "do":"return" is a restart
// that finds only the checkpoint.
type event struct {
	Do     string                     `json:"do"`
	Pod    string                     `json:"pod"`
	At     int64                      `json:"at"`
	Amount int64                      `json:"amount"`
	Config logic.RecommendationConfig `json:"config"`
	// What is found after a restart.
	Checkpoint vpatypes.VerticalPodAutoscalerCheckpointStatus `json:"checkpoint"`
}

type numbers struct {
	Accepted []bool   `json:"accepted"`
	CPU      [3]int64 `json:"cpu"`
	Memory   [3]int64 `json:"memory"`
	// The aggregate as a checkpoint.
	Checkpoint any `json:"checkpoint"`
}

func replay() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	app, result := newContainer(), numbers{Accepted: []bool{}}
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		at := time.Unix(0, e.At).UTC()
		switch e.Do {
		case "cpu":
			result.Accepted = append(result.Accepted, app.add(e.Pod, at, e.Amount, vpamodel.ResourceCPU))
		case "memory":
			result.Accepted = append(result.Accepted, app.add(e.Pod, at, e.Amount, vpamodel.ResourceMemory))
		case "oom":
			result.Accepted = append(result.Accepted, app.pod(e.Pod).RecordOOM(at, vpamodel.ResourceAmount(e.Amount)) == nil)
		case "return":
			app = newContainer()
			app.initial = vpamodel.NewAggregateContainerState()
			if err := app.initial.LoadFromCheckpoint(&e.Checkpoint); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		case "end":
			pool := app.pooled()
			recommended := logic.CreatePodResourceRecommender(e.Config).GetRecommendedPodResources(vpamodel.ContainerNameToAggregateStateMap{"app": pool})["app"]
			for i, r := range []vpamodel.Resources{recommended.Target, recommended.LowerBound, recommended.UpperBound} {
				result.CPU[i], result.Memory[i] = int64(r[vpamodel.ResourceCPU]), int64(r[vpamodel.ResourceMemory])
			}
			checkpoint, err := pool.SaveToCheckpoint()
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			result.Checkpoint = checkpoint
			line, err := json.Marshal(result)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			fmt.Fprintln(out, string(line))
			app, result = newContainer(), numbers{Accepted: []bool{}}
		default:
			fmt.Fprintln(os.Stderr, "unknown event", e.Do)
			os.Exit(1)
		}
	}
}
